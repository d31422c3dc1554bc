"""The flags of `main.py worker` are the arguments of `serve_worker`."""

import inspect

import pytest

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.commands import worker


@pytest.fixture(name='served')
def _served(monkeypatch):
  """What `serve_worker` is called with, instead of serving."""
  calls = []
  real = inspect.signature(runtime.serve_worker)

  def serve(**arguments):
    real.bind(**arguments)
    calls.append(arguments)
    return 0

  serve.__signature__ = real
  serve.__doc__ = runtime.serve_worker.__doc__
  monkeypatch.setattr(runtime, 'serve_worker', serve)
  return calls


def test_every_argument_is_a_flag_with_its_default_and_help(served):
  signature = inspect.signature(runtime.serve_worker).parameters
  options = worker.build_options()
  assert options.names == set(signature)
  assert worker.main(['--port=0']) == 0
  defaults = {name: p.default for name, p in signature.items()}
  assert served == [{**defaults, 'port': 0}]
  text = ' '.join(options.help().split())
  assert 'picks a free one' in text and 'Default: 127.0.0.1.' in text


def test_values_are_read_as_what_the_arguments_are(served):
  worker.main(
    [
      '--port=8000',
      '--insecure',
      '--engine=in_process',
      '--max_concurrent_clients=3',
      '--devices=GPU:0,GPU:1',
    ]
  )
  (arguments,) = served
  assert arguments['port'] == 8000 and arguments['insecure'] is True
  assert arguments['max_concurrent_clients'] == 3
  assert arguments['devices'] == ['GPU:0', 'GPU:1']


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--port=70000'], 'at most 65535'),
    (['--port=0', '--engine=fast'], "'in_process', 'native'"),
    (['--port=0', '--max_concurrent_clients=0'], 'at least 1'),
    # An empty file name is no way to turn TLS off.
    (['--port=0', '--certificate=', '--private_key='], "'' cannot be read"),
  ],
)
def test_bad_values_are_refused(flags, message):
  with pytest.raises(errors.SettingsError, match=message):
    worker.main(flags)
