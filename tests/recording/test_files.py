"""Files are whole or not there, also when a writer was killed."""

import json
import os
import re
import shutil
from concurrent import futures

import pytest

from tests import waiting
from tests.recording import no_files
from tff_adaptive import errors
from tff_adaptive.lab.recording import files


def test_atomic_write_leaves_nothing_beside(tmp_path):
  files.write_atomically(tmp_path / 'a', b'one')
  files.write_atomically(tmp_path / 'a', b'two')
  assert (tmp_path / 'a').read_bytes() == b'two'
  assert os.listdir(tmp_path) == ['a']


def test_write_that_fails_keeps_the_old_file(tmp_path):
  (tmp_path / 'a').mkdir()
  with pytest.raises(errors.RunError, match='cannot be written'):
    files.write_atomically(tmp_path / 'a', b'one')
  assert os.listdir(tmp_path) == ['a']


def test_looking_whether_a_folder_can_be_written_leaves_no_trace(tmp_path):
  (tmp_path / 'there').mkdir()
  files.check_writable(tmp_path / 'there')
  assert not os.listdir(tmp_path / 'there')
  (tmp_path / 'there').rmdir()
  files.check_writable(tmp_path / 'a' / 'b')
  assert not os.listdir(tmp_path)
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.SettingsError, match='--root_output_dir'):
    files.check_writable(tmp_path / 'file' / 'b')
  for name in ('file', 'x' * 300):
    with pytest.raises(errors.SettingsError, match='--output'):
      files.check_writable(tmp_path / name, '--output')
  assert os.listdir(tmp_path) == ['file']


def test_two_processes_in_one_folder(tmp_path):
  folder = tmp_path / 'run'
  complains = pytest.raises(errors.SettingsError, match='Another process')
  with files.RunFolder(folder), complains, files.RunFolder(folder):
    pass
  with files.RunFolder(tmp_path / 'run'):
    pass


def test_settings_round_trip_and_damage(tmp_path):
  with files.RunFolder(tmp_path / 'run') as folder:
    assert folder.read_hparams() is None
    folder.write_hparams({'settings': {'a': 0.1, 'b': None}})
    found = folder.read_hparams()
    assert re.fullmatch('[0-9a-f]{32}', found.pop('id'))
    assert found == {'settings': {'a': 0.1, 'b': None}}
    for damage in (
      '{',
      '[1]',
      '\x00',
      '{"settings": []}',
      '[' * 9999,
      '[' * 10**6,
      '{"settings": {"a": ' + '9' * 5000 + '}}',
      '{"settings": {"task": "\\ud800"}}',
      '{"settings": {"\\udfff": 1}}',
    ):
      folder.hparams.write_text(damage)
      with pytest.raises(errors.SettingsError, match='settings') as error:
        folder.read_hparams()
      assert str(folder.hparams) in str(error.value)
      assert '\n' not in str(error.value)
      with pytest.raises(errors.SettingsError, match='settings'):
        folder.identity  # noqa: B018


@pytest.mark.parametrize('kind', no_files.KINDS)
def test_what_is_no_file(tmp_path, kind):
  folder = files.RunFolder(tmp_path)
  for path in (folder.hparams, folder.path / '.lock'):
    no_files.KINDS[kind](path)
  with (
    waiting.no_hang(),
    pytest.raises(errors.SettingsError, match=f'hparams.json.*it is {kind}'),
  ):
    folder.read_hparams()
  with waiting.no_hang():
    folder.is_busy()
    if kind != 'a device':  # Which can be locked like a file.
      with pytest.raises(errors.SettingsError, match='cannot be written'):
        folder.__enter__()


def test_identity_is_of_a_folder_and_its_copies(tmp_path):
  identities = []
  for name in 'ab':
    with files.RunFolder(tmp_path / name) as folder:
      folder.write_hparams({'settings': {'a': 1}, 'versions': {}})
      identities.append(folder.identity)
  assert identities[0] != identities[1]
  shutil.copytree(tmp_path / 'a', tmp_path / 'c')
  copy = files.RunFolder(tmp_path / 'c')
  assert copy.identity == identities[0]
  # What the settings are is part of it, how they are written is not.
  text = copy.hparams.read_text()
  copy.hparams.write_text(json.dumps(json.loads(text)))
  assert copy.identity == identities[0]
  copy.hparams.write_text(text.replace('"a": 1', '"a": 2'))
  assert copy.identity not in identities


def test_only_files_of_killed_writers_are_removed(tmp_path):
  left = {
    '.metrics.csv.0123abcd.tmp': False,
    '.metrics.csv.0123ABCD.tmp': True,
    '.a.1': True,
    'metrics.csv.0123abcd.tmp': True,
    '.x.tmp': True,
  }
  for name in left:
    (tmp_path / name).write_bytes(b'')
  for name in ('.a.2', '.b.0123abcd.tmp'):
    (tmp_path / name).mkdir()
  os.mkfifo(tmp_path / '.c.0123abcd.tmp')
  with files.RunFolder(tmp_path):
    pass
  stay = {name for name, stays in left.items() if stays}
  assert set(os.listdir(tmp_path)) == {
    '.lock', '.a.2', '.b.0123abcd.tmp', '.c.0123abcd.tmp', *stay
  }  # fmt: skip


def test_writers_of_one_file_do_not_meet(tmp_path):
  """Also where their process ids are the same, as in two containers."""
  path = tmp_path / 'a'
  contents = [bytes([c]) * 100_000 for c in range(8)]

  def write(content):
    for _ in range(20):
      files.write_atomically(path, content)
      assert path.read_bytes() in contents

  with futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(write, contents))
  assert os.listdir(tmp_path) == ['a']
