"""Side-by-side timings of one federated round in different simulators.

  python benchmarks/runtime.py --models=logistic,cnn,lstm --output=times.json \
      --fedjax_python=.fedjax/bin/python --pfl_python=.pfl/bin/python

Each contender lives in a process of its own, so that peak memory is its own,
and the rounds of all contenders take turns, so that a busy machine is busy for
all of them. All start from the same weights and train on the same batches, with
Adam at the server. Reported are medians over the rounds after warm-up, ratios
to this project's runtime, the first round (with compilation), peak resident
memory (workers included), and the loss of the model on all data before and
after: where these differ, the contenders did not do the same.

Contenders:
  tff_reduce     tff.learning's FedAvg on TFF's native runtime, as shipped
  tff_iterator   the same with the iterator loop
  in_process     this project's FedAdam in its in-process runtime, metrics on
  tff_in_process tff.learning's FedAvg (as shipped) in the in-process runtime
  plain          a TensorFlow loop over the same batches, nothing federated (so
                 its loss is another); the LSTM is this project's, as in
                 in_process, which is faster on CPUs than Keras'
  fedjax         FedJAX's federated averaging
  pfl, pfl_2     pfl-research on PyTorch, in one process and in two

FedJAX and pfl-research cannot be installed beside TFF. Environments of theirs:

  python3.11 -m venv .fedjax
  .fedjax/bin/pip install fedjax==0.0.17 jax==0.4.30 jaxlib==0.4.30 \
      dm-haiku==0.0.13 'numpy<2'
  python3.11 -m venv .pfl
  .pfl/bin/pip install pfl==0.6.0 torch

With --shuffle, each round has new dataset objects that shuffle (training in
earnest); otherwise all rounds have the same objects.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

_ROOT = os.path.abspath(
  os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
)
# Which program runs a contender.
_CONTENDERS = {
  'tff_reduce': 'tensorflow',
  'tff_iterator': 'tensorflow',
  'in_process': 'tensorflow',
  'tff_in_process': 'tensorflow',
  'plain': 'tensorflow',
  'fedjax': 'fedjax',
  'pfl': 'pfl',
  'pfl_2': 'pfl',
}
_MODELS = ('logistic', 'cnn', 'lstm')


class _Contender:
  """A contender's process."""

  def __init__(self, name: str, python: str, options):
    self.name = name
    self.seconds: list[float] = []
    program = os.path.join(
      _ROOT, 'benchmarks', 'contenders', f'{_CONTENDERS[name]}_rounds.py'
    )
    arguments = [f'--contender={name}', f'--model={options.model}']
    for key in ('clients', 'examples', 'batch_size', 'width', 'threads'):
      if getattr(options, key) is not None:
        arguments.append(f'--{key}={getattr(options, key)}')
    if options.shuffle:
      arguments.append('--shuffle')
    self._process = subprocess.Popen(
      [python, program, *arguments],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=None if options.verbose else subprocess.DEVNULL,
      text=True,
      env={**os.environ, 'PYTHONPATH': _ROOT},
    )
    built = self._answer()
    self.build, self.first_loss = built['build'], built['loss']

  def _answer(self):
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(
        f'{self.name} ended with exit code {self._process.wait()}; --verbose'
        ' shows why.'
      )
    return json.loads(line)

  def round(self) -> None:
    self._process.stdin.write('round\n')
    self._process.stdin.flush()
    self.seconds.append(self._answer()['seconds'])

  def finish(self) -> dict:
    """Reads the contender's final report: peak memory and final loss."""
    self._process.stdin.close()
    last = self._answer()
    self._process.wait()
    return last


def compare(options) -> list[dict]:
  """Runs all contenders on one model; returns a row for each."""
  rows, running = [], []
  for name in options.contenders:
    program = _CONTENDERS[name]
    python = options.pythons[program]
    if python is None:
      reason = f'no --{program}_python given'
      rows.append({'contender': name, 'skipped': reason})
      continue
    running.append(_Contender(name, python, options))
  for _ in range(options.warm_up + options.rounds):
    for contender in running:
      contender.round()
  for contender in running:
    times = contender.seconds[options.warm_up :]
    last = contender.finish()
    rows.append(
      {
        'contender': contender.name,
        'median_seconds': statistics.median(times),
        'min_seconds': min(times),
        'first_round_seconds': contender.seconds[0],
        'build_seconds': contender.build,
        'first_loss': contender.first_loss,
        'last_loss': last['loss'],
        'peak_bytes': last['peak'],
      }
    )
  ours = next((r for r in rows if r['contender'] == 'in_process'), None)
  for row in rows:
    row.update(
      model=options.model,
      clients=options.clients,
      examples=options.examples,
      batch_size=options.batch_size,
      width=options.width,
    )
    if ours is not None and 'median_seconds' in row:
      row['ratio'] = row['median_seconds'] / ours['median_seconds']
  return rows


def _print_table(rows: list[dict]) -> None:
  print(
    f'{"model":9} {"clients":>7} {"examples":>8} {"contender":15}'
    f' {"median s":>9} {"min s":>9} {"ratio":>6} {"first s":>8}'
    f' {"loss":>16} {"peak MiB":>9}'
  )
  for row in rows:
    head = (
      f'{row["model"]:9} {row["clients"]:7} {row["examples"]:8}'
      f' {row["contender"]:15}'
    )
    if 'skipped' in row:
      print(f'{head} skipped: {row["skipped"]}')
      continue
    print(
      f'{head} {row["median_seconds"]:9.4f} {row["min_seconds"]:9.4f}'
      f' {row.get("ratio", float("nan")):6.2f}'
      f' {row["first_round_seconds"]:8.2f}'
      f' {row["first_loss"]:7.4f}->{row["last_loss"]:7.4f}'
      f' {row["peak_bytes"] >> 20:9}'
    )
  sys.stdout.flush()


def _parse(arguments):
  parser = argparse.ArgumentParser(
    description=__doc__.split('\n', maxsplit=1)[0]
  )
  parser.add_argument('--models', default='logistic,cnn')
  parser.add_argument('--contenders', default=','.join(_CONTENDERS))
  parser.add_argument('--rounds', type=int, default=10, help='after warm-up')
  parser.add_argument('--warm_up', type=int, default=3)
  parser.add_argument(
    '--clients', default='10', help='cohort sizes, separated by commas'
  )
  parser.add_argument(
    '--examples', help='per client; several numbers with commas between'
  )
  parser.add_argument('--batch_size', type=int, default=None)
  parser.add_argument(
    '--width', type=int, default=784, help='inputs of the logistic model'
  )
  parser.add_argument(
    '--threads', type=int, default=None, help='clients at once'
  )
  parser.add_argument('--shuffle', action='store_true')
  parser.add_argument('--output', help='JSON file to write')
  parser.add_argument('--verbose', action='store_true')
  for name in ('fedjax', 'pfl'):
    parser.add_argument(f'--{name}_python', help=f'interpreter that has {name}')
  options = parser.parse_args(arguments)
  options.pythons = {
    'tensorflow': sys.executable,
    'fedjax': options.fedjax_python,
    'pfl': options.pfl_python,
  }
  for flag, known in (('models', _MODELS), ('contenders', _CONTENDERS)):
    chosen = getattr(options, flag).split(',')
    unknown = sorted(set(chosen) - set(known))
    if unknown:
      parser.error(f'--{flag} are {", ".join(known)}; got {unknown[0]!r}.')
    setattr(options, flag, chosen)
  return options


def main(arguments=None) -> None:
  options = _parse(arguments)
  cohorts = [int(size) for size in options.clients.split(',')]
  examples, batch_size = options.examples, options.batch_size
  rows = []
  for model in options.models:
    options.model = model
    # Shakespeare's clients have few, long sequences.
    sizes = examples or ('20' if model == 'lstm' else '100')
    options.batch_size = batch_size or (4 if model == 'lstm' else 20)
    for options.clients in cohorts:
      for options.examples in map(int, sizes.split(',')):
        rows.extend(compare(options))
        _print_table(rows[-len(options.contenders) :])
  if options.output:
    report = {'cores': len(os.sched_getaffinity(0)), 'rows': rows}
    with open(options.output, 'w', encoding='utf-8') as file:
      json.dump(report, file, indent=2)


if __name__ == '__main__':
  main()
