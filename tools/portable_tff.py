"""Retags TensorFlow Federated's wheel for any platform, without its worker.

python tools/portable_tff.py FOLDER [WHEEL]

Everything in the wheel is Python but for one program, the worker of TFF's own
runtime: hence it is tagged for Linux on x86-64. Without that program the
wheel installs wherever TensorFlow does, and takes 300 MB less. WHEEL is
downloaded by pip unless given; the new wheel is written to FOLDER.
"""

import base64
import csv
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_WORKER = 'tensorflow_federated/data/worker_binary'
_PLATFORM = 'manylinux_2_31_x86_64'


def download(folder: pathlib.Path) -> pathlib.Path:
  """Downloads the wheel that requirements.txt pins, by its hash."""
  text = (_ROOT / 'requirements.txt').read_text(encoding='utf-8')
  pinned = folder / 'pinned.txt'
  [line] = re.findall('^tensorflow-federated==.*$', text, re.MULTILINE)
  pinned.write_text(line, encoding='utf-8')
  command = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps']
  command += ['--only-binary=:all:', f'--platform={_PLATFORM}']
  command += ['--ignore-requires-python', f'--dest={folder}', '-r', pinned]
  subprocess.run(command, check=True)
  (wheel,) = folder.glob('*.whl')
  return wheel


def _entry(name: str, content: bytes) -> list[str]:
  """Returns a row of RECORD: name, digest and size."""
  digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
  return [name, f'sha256={digest.decode().rstrip("=")}', str(len(content))]


def retag(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Writes a wheel without the worker, tagged for any platform.

  Args:
    wheel: TFF's wheel.
    folder: Where the new wheel is written.

  Returns:
    The new wheel.
  """
  name, release = wheel.name.split('-')[:2]
  path = folder / f'{name}-{release}-py3-none-any.whl'
  rows = []
  with (
    zipfile.ZipFile(wheel) as source,
    zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as target,
  ):
    for entry in source.infolist():
      if entry.filename == _WORKER or entry.is_dir():
        continue
      content = source.read(entry)
      if entry.filename.endswith('.dist-info/WHEEL'):
        content = re.sub(rb'(?m)^Tag: .*$', b'Tag: py3-none-any', content)
      if entry.filename.endswith('.dist-info/RECORD'):
        record = entry.filename
        continue
      target.writestr(entry, content)
      rows.append(_entry(entry.filename, content))
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows([*rows, [record, '', '']])
    target.writestr(record, text.getvalue())
  return path


def main() -> None:
  folder = pathlib.Path(sys.argv[1])
  folder.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory() as downloads:
    given = [pathlib.Path(path) for path in sys.argv[2:3]]
    wheel = given[0] if given else download(pathlib.Path(downloads))
    print(retag(wheel, folder))


if __name__ == '__main__':
  main()
