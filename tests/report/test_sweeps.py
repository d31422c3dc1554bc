"""The files that describe a sweep, where they are damaged."""

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import sweeps


@pytest.mark.parametrize(
  'text', ['{', '[]', '{}', 'null', '[' * 100_000, '{"select": 1, "shared": 1}']
)
def test_a_damaged_description_is_refused_or_harmless(tmp_path, text):
  files.RunFolder(tmp_path).sweep.write_text(text)
  if 'select' in text:
    assert sweeps.read(tmp_path) == sweeps.SweepRecord('1', True)
  else:
    with pytest.raises(errors.SettingsError, match="sweep's description"):
      sweeps.read(tmp_path)


def test_a_damaged_table_is_refused(tmp_path):
  assert sweeps.read_unfinished(tmp_path) == []
  for text in (b'', b'name,seed\na,0\n', b'\xff\xfe'):
    sweeps.table_path(tmp_path).write_bytes(text)
    with pytest.raises(errors.SettingsError, match="sweep's table"):
      sweeps.read_unfinished(tmp_path)
