"""Chromium without a window, told what to do through a pipe (DevTools)."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time

_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
_SECONDS = 60
# DevTools' pipe is of file descriptors 3 and 4 (`--remote-debugging-pipe`).
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
  os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find():
  """Finds the program; None where it is not installed."""
  return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
  """One page in a browser with a profile of its own.

  Attributes:
    complaints: What the page's scripts raised, and what its log complains of.
    requests: Every address that it asked for.
  """

  def __init__(self, profile: pathlib.Path):
    self.complaints, self.requests = [], []
    self._number, self._received = 0, b''
    theirs_in, self._out = os.pipe()
    self._in, theirs_out = os.pipe()
    self._process = subprocess.Popen(
      [
        *(sys.executable, '-c', _LAUNCH, str(theirs_in), str(theirs_out)),
        find(),
        *('--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'),
        *('--disable-background-networking', '--disable-component-update'),
        *('--disable-sync', '--disable-extensions', '--no-first-run'),
        *('--disable-dev-shm-usage', '--remote-debugging-pipe'),
        f'--user-data-dir={profile}',
        'about:blank',
      ],
      pass_fds=(theirs_in, theirs_out),
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    self._session = None
    target = self.call('Target.createTarget', url='about:blank')['targetId']
    self._session = self.call(
      'Target.attachToTarget', targetId=target, flatten=True
    )['sessionId']
    for domain in ('Page', 'Runtime', 'Log', 'Network'):
      self.call(f'{domain}.enable')

  def __enter__(self):
    return self

  def __exit__(self, *_):
    # All of its processes end, and leave the profile alone.
    self._session = None
    with contextlib.suppress(OSError, RuntimeError):
      self.call('Browser.close')
    try:
      self._process.wait(timeout=10)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    os.close(self._in)
    os.close(self._out)

  def call(self, method, **parameters):
    """Calls a method of DevTools and returns its result."""
    self._number += 1
    message = {'id': self._number, 'method': method, 'params': parameters}
    if self._session is not None:
      message['sessionId'] = self._session
    os.write(self._out, json.dumps(message).encode() + b'\0')
    number = self._number
    while True:
      answer = self._read()
      if answer.get('id') == number:
        assert 'error' not in answer, (method, answer)
        return answer['result']

  def _read(self):
    end = time.monotonic() + _SECONDS
    while b'\0' not in self._received:
      ready, _, _ = select.select([self._in], [], [], end - time.monotonic())
      data = os.read(self._in, 1 << 20) if ready else b''
      if not data:
        raise RuntimeError('Chromium does not answer.')
      self._received += data
    text, _, self._received = self._received.partition(b'\0')
    message = json.loads(text)
    parameters = message.get('params', {})
    if message.get('method') == 'Runtime.exceptionThrown':
      details = parameters['exceptionDetails']
      thrown = details.get('exception', {}).get('description', '')
      self.complaints.append(f'{details["text"]} {thrown}')
    if message.get('method') == 'Log.entryAdded':
      self.complaints.append(parameters['entry']['text'])
    if message.get('method') == 'Network.requestWillBeSent':
      self.requests.append(parameters['request']['url'])
    return message

  def evaluate(self, expression):
    """Evaluates JavaScript in the page and returns its value."""
    result = self.call(
      'Runtime.evaluate', expression=expression, returnByValue=True
    )
    assert 'exceptionDetails' not in result, (expression, result)
    return result['result'].get('value')

  def open(self, path, *, width):
    """Opens a file in a window of some width, and waits for its figures."""
    self.call(
      'Emulation.setDeviceMetricsOverride',
      width=width,
      height=900,
      deviceScaleFactor=1,
      mobile=False,
    )
    self.call('Page.navigate', url=pathlib.Path(path).resolve().as_uri())
    self.wait('document.readyState === "complete"')
    self.wait('document.documentElement.dataset.drawn === "yes"')

  def wait(self, condition):
    """Waits until an expression is true in the page."""
    end = time.monotonic() + _SECONDS
    while not self.evaluate(condition):
      if time.monotonic() > end or self.complaints:
        raise RuntimeError(f'{condition}: {self.complaints}')
      time.sleep(0.05)

  def screenshot(self):
    """Takes a picture of the whole page; returns it as PNG."""
    answer = self.call('Page.captureScreenshot', captureBeyondViewport=True)
    return base64.b64decode(answer['data'])
