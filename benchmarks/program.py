"""Side-by-side timings of whole training programs, round by round.

  python benchmarks/program.py --models=logistic,cnn,lstm,tag \\
      --output=times.json --fedjax_python=.fedjax/bin/python \\
      --pfl_python=.pfl/bin/python --flower_python=.flower/bin/python

Where benchmarks/runtime.py times a round on batches that are there already,
this times what users wait for: a cohort is drawn of a population of clients,
their examples are shuffled and batched anew, they train, and Adam at the server
takes its step; this project writes its row of metrics.csv, too. Each contender
lives in a process of its own. They take turns of five rounds: nobody runs a
program that waits after each round until others have filled the caches. All
start from the same weights, with the same cohorts; every contender shuffles by
its own random numbers, so final losses agree in their leading digits only.
Reported is what benchmarks/runtime.py reports, with ratios to this project's
program.

Contenders:
  program     this project: what `main.py` runs, from its loop to its files
  alone       the same with --vectorize_clients=false
  compiled    the same with --vectorize_clients=true --jit_compile=true
  in_process  its runtime alone, on one cohort's fixed batches
              (benchmarks/runtime.py), which the program is held against
  hand        the same round as one writes it in TensorFlow, without a library
  fedjax      FedJAX's federated averaging
  pfl, pfl_2  pfl-research on PyTorch, in one process and in two
  flower      Flower's simulation on PyTorch and Ray

Flower needs an environment of its own like the others, which
benchmarks/runtime.py names:

  python3.11 -m venv .flower
  .flower/bin/pip install 'flwr[simulation]==1.41.0' torch
"""

import side_by_side

# Which program runs a contender.
_CONTENDERS = {
  'program': 'program',
  'alone': 'program',
  'compiled': 'program',
  'in_process': 'tensorflow',
  'hand': 'hand_written',
  'fedjax': 'fedjax',
  'pfl': 'pfl',
  'pfl_2': 'pfl',
  'flower': 'flower',
}
# Examples of a client, batch size, inputs.
_MODELS = {
  'logistic': (100, 20, 784),
  'cnn': (100, 20, 784),
  'lstm': (20, 4, 784),
  'tag': (40, 20, 10_000),
  'cifar': (50, 10, 784),
}


def _parse(arguments):
  parser = side_by_side.build_parser(
    __doc__.split('\n', maxsplit=1)[0],
    _CONTENDERS,
    models='logistic,cnn,lstm,tag',
    rounds=20,
    turn=5,
  )
  parser.add_argument(
    '--population', type=int, default=100, help='clients to draw cohorts of'
  )
  parser.add_argument('--examples', type=int, help='of a client')
  return side_by_side.parse(parser, arguments, _CONTENDERS, _MODELS)


def main(arguments=None) -> None:
  options = _parse(arguments)
  cohorts = [int(size) for size in options.clients.split(',')]
  asked = options.examples, options.batch_size, options.population
  rows = []
  for model in options.models:
    options.model = model
    examples, batch_size, options.width = _MODELS[model]
    options.examples = asked[0] or examples
    options.batch_size = asked[1] or batch_size
    for options.clients in cohorts:
      options.population = max(asked[2], options.clients)
      rows.extend(side_by_side.compare(options, _CONTENDERS, 'program'))
      side_by_side.print_table(rows[-len(options.contenders) :])
  if options.output:
    side_by_side.write(options.output, rows)


if __name__ == '__main__':
  main()
