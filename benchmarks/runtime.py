"""Side-by-side timings of one federated round in different simulators.

  python benchmarks/runtime.py --models=logistic,cnn,lstm --output=times.json \
      --fedjax_python=.fedjax/bin/python --pfl_python=.pfl/bin/python

Each contender lives in a process of its own, and their rounds take turns. All
start from the same weights and train on the same batches, with
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

import side_by_side

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
# The autoencoder is for contenders on TensorFlow alone.
_MODELS = ('logistic', 'cnn', 'lstm', 'autoencoder')


def _parse(arguments):
  parser = side_by_side.build_parser(
    __doc__.split('\n', maxsplit=1)[0],
    _CONTENDERS,
    models='logistic,cnn',
    rounds=10,
    turn=1,
  )
  parser.add_argument(
    '--examples', help='per client; several numbers with commas between'
  )
  parser.add_argument(
    '--width', type=int, default=784, help='inputs of the logistic model'
  )
  parser.add_argument('--threads', type=int, help='clients at once')
  parser.add_argument('--shuffle', action='store_true')
  return side_by_side.parse(parser, arguments, _CONTENDERS, _MODELS)


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
        rows.extend(side_by_side.compare(options, _CONTENDERS, 'in_process'))
        side_by_side.print_table(rows[-len(options.contenders) :])
  if options.output:
    side_by_side.write(options.output, rows)


if __name__ == '__main__':
  main()
