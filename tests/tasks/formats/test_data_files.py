"""Files that would take all time or memory are refused in a sentence."""

import gzip
import io
import os
import pathlib
import resource
import sqlite3
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tasks import preprocessing
from tasks.formats import data_files
from tasks.formats import sqlite_files
from tasks.images import cifar
from tasks.images import gld23k
from tasks.images import mnist
from tasks.problems import libsvm_logistic
from tasks.text import stackoverflow
from tasks.text import text_classification

_GET = 'Get it.'
_READERS = {
  'idx': lambda path: mnist.read_idx(path, 1, _GET),
  'libsvm': lambda path: libsvm_logistic.read(path, num_features=3, get=_GET),
  'csv': lambda path: text_classification.read_csv(path, 4, _GET),
  'writers': lambda path: mnist.read_writers(path, 3),
  'counts': stackoverflow.read_counts,
  'tokens': text_classification.read_vocabulary,
  'images': lambda path: cifar.read_binary([path], num_classes=(10,), get=_GET),
  'jpegs': lambda path: cifar.read_jpegs(path, num_classes=10, get=_GET),
  'records': lambda path: gld23k.check_records(path, _GET),
  'npz': data_files.read_npz,
  'safetensors': data_files.read_safetensors,
}


@pytest.fixture(name='little_memory', autouse=True)
def _little_memory():
  """A gigabyte more than there is now, and no more."""
  soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
  status = pathlib.Path('/proc/self/status').read_text()
  used = int(status.partition('VmData:')[2].split()[0]) << 10
  resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 30), hard))
  yield
  resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _told(read, *arguments):
  with pytest.raises(data_files.DataError) as caught:
    read(*arguments)
  message = str(caught.value)
  assert '\n' not in message
  return message


@pytest.mark.parametrize('name', _READERS)
def test_pipes_and_devices_are_not_waited_for(tmp_path, name):
  os.mkfifo(tmp_path / 'a')
  (tmp_path / 'b').symlink_to('/dev/zero')
  for path in (tmp_path / 'a', tmp_path / 'b'):
    assert f'{path} is a pipe or a device' in _told(_READERS[name], path)


@pytest.mark.parametrize('name', _READERS)
def test_files_larger_than_memory_are_not_read(tmp_path, name):
  path = tmp_path / 'a'
  with open(path, 'wb') as file:
    file.truncate(data_files.MAX_BYTES + 1)  # Takes no room on the disk.
  assert f'at most {data_files.MAX_BYTES >> 20:,} are' in _told(
    _READERS[name], path
  )


def test_gzip_that_inflates_without_end(tmp_path):
  """2.5 GB of zeros in 2.5 MB."""
  path = tmp_path / 'a.gz'
  zeros = bytes(1 << 20)
  with gzip.open(path, 'wb', compresslevel=1) as file:
    file.write(bytes([0, 0, 8, 1]) + (1000).to_bytes(4, 'big'))
    for _ in range(64):
      file.write(zeros)
  # Members of a gzip file follow each other.
  path.write_bytes(path.read_bytes() + gzip.compress(64 * zeros) * 39)
  assert 'have 1008 bytes' in _told(_READERS['idx'], path)
  with gzip.open(path, 'wb') as file:
    file.write(bytes([0, 0, 8, 3]) + b'\xff' * 12)
  assert 'are read into memory' in _told(mnist.read_idx, path, 3, _GET)


def test_archive_that_inflates_without_end(tmp_path):
  path = tmp_path / 'a.npz'
  member = io.BytesIO()
  np.save(member, np.zeros(1 << 20, np.uint8))
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('a.npy', member.getvalue())
  content = bytearray(path.read_bytes())
  # The size that the directory tells is what would be read.
  at = content.rindex(b'PK\x01\x02') + 24
  content[at : at + 4] = b'\xfe\xff\xff\xff'
  at = content.rindex(b'PK\x01\x02')
  whole = content[at : content.rindex(b'PK\x05\x06')]
  end = bytearray(content[content.rindex(b'PK\x05\x06') :])
  end[8:12] = (2).to_bytes(2, 'little') * 2
  end[12:16] = (2 * len(whole)).to_bytes(4, 'little')
  path.write_bytes(content[:at] + whole + whole + end)
  assert 'are read into memory' in _told(_READERS['npz'], path)


def _write_sqlite(path, *statements):
  with sqlite3.connect(path) as connection:
    for statement in statements:
      connection.execute(statement)
  connection.close()


_EXAMPLES = (
  'CREATE TABLE examples (split_name TEXT, client_id TEXT,'
  ' serialized_example_proto BLOB)'
)
_CLIENTS = 'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT)'
_ENDLESS = (
  'CREATE VIEW {} (client_id, split_name, serialized_example_proto) AS'
  ' WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)'
  " SELECT 'c', 'other', x'00' FROM n"
)


@pytest.mark.parametrize(
  'statements, text',
  [
    ((_EXAMPLES, _ENDLESS.format('client_metadata')), 'must be a plain table'),
    ((_CLIENTS, _ENDLESS.format('examples')), 'must be a plain table'),
    (
      (
        _EXAMPLES,
        _CLIENTS,
        'PRAGMA writable_schema = ON',
        "UPDATE sqlite_schema SET sql = 'CREATE VIRTUAL TABLE client_metadata"
        " USING m(a)', rootpage = 0 WHERE name = 'client_metadata'",
      ),
      'must be a plain table',
    ),
    (
      (
        _EXAMPLES,
        _CLIENTS,
        "INSERT INTO client_metadata VALUES ('c', 'train')",
        "INSERT INTO examples VALUES ('train', 'c', zeroblob(70000000))",
      ),
      'too big',
    ),
  ],
)
def test_sqlite_that_runs_or_grows_without_end(tmp_path, statements, text):
  _write_sqlite(tmp_path / 'a.sqlite', *statements)
  message = _told(
    lambda: sqlite_files.find(
      str(tmp_path),
      'a.sqlite',
      splits=['train'],
      features=['x'],
      loader='emnist',
    )
  )
  assert text in message


def test_image_that_claims_to_be_huge():
  small = bytearray(tf.io.encode_jpeg(np.zeros([8, 8, 3], np.uint8)).numpy())
  at = small.index(b'\xff\xc0') + 5
  small[at : at + 4] = b'\xff\xdc' * 2
  with pytest.raises(tf.errors.InvalidArgumentError, match='more pixels'):
    preprocessing.decode_jpeg(bytes(small))
