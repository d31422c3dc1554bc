"""The script for Slurm, with a stand-in for Slurm: two machines on loopback."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import portpicker
import pytest

from tests import recorded

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# Runs here what srun would run on the machine that is named.
_SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""
_SCONTROL = """#!/bin/bash
echo one
echo two
"""
_HOSTNAME = """#!/bin/bash
echo 127.0.0.1
"""


@pytest.mark.slow
def test_a_job_trains_on_two_machines(tmp_path):
  programs = tmp_path / 'bin'
  programs.mkdir()
  for name, text in dict(
    srun=_SRUN, scontrol=_SCONTROL, hostname=_HOSTNAME
  ).items():
    (programs / name).write_text(text)
    (programs / name).chmod(0o755)
  folder = tempfile.mkdtemp(prefix='r', dir='/tmp')
  environment = {
    **os.environ,
    'PATH': f'{programs}:{os.environ["PATH"]}',
    'VENV': str(pathlib.Path(sys.prefix)),
    'SLURM_JOB_NODELIST': 'machines',
    'SLURM_CPUS_PER_TASK': '1',
    'RAY_PORT': str(portpicker.pick_unused_port()),
    'RAY_OPTIONS': f'--object-store-memory=200000000 --temp-dir={folder}',
  }
  log = tmp_path / 'log'
  words = ['bash', 'examples/cluster/slurm.sh', '--data=synthetic']
  words += ['--total_rounds=3', '--clients_per_round=4']
  words += [f'--root_output_dir={tmp_path}', '--experiment_name=run']
  with open(log, 'w', encoding='utf-8') as file:
    done = subprocess.run(
      words,
      cwd=_ROOT,
      env=environment,
      stdout=file,
      stderr=subprocess.STDOUT,
      timeout=300,
      check=False,
    )
  shutil.rmtree(folder, ignore_errors=True)
  assert done.returncode == 0, log.read_text()
  said = log.read_text()
  assert said.count('Ray runtime started') == 2
  assert 'on the ray runtime' in said
  assert len(recorded.rows(tmp_path / 'run')) == 4
