"""What `main.py` runs, for benchmarks/program.py: all of it, round by round.

The run goes through its own loop in the main thread, as always. A second thread
speaks with benchmarks/program.py, and lets the loop begin a round when it is
this contender's turn.
"""

import queue
import sys
import tempfile
import threading

import program_task  # noqa: F401  Registers the task.
import workload

from tff_adaptive import training
from tff_adaptive.lab.training.participation import cohorts

_FLAGS = {
  'alone': {'vectorize_clients': 'false'},
  'compiled': {'vectorize_clients': 'true', 'jit_compile': 'true'},
}


class _Turns:
  """Rows of a run under way, of which each waits for its turn."""

  def __init__(self):
    self._rows = queue.Queue()
    self._go = threading.Semaphore(0)

  def round(self, event) -> None:
    """Hands a finished round's row over; waits until the next may begin."""
    self._rows.put(event.row)
    self._go.acquire()

  def first(self):
    """Waits for the row of the untrained model."""
    return self._rows.get()

  def next(self):
    """Lets a round run to its end."""
    self._go.release()
    return self._rows.get()

  def finish(self, last) -> None:
    """Hands over the last row, with the evaluation of the trained model."""
    self._rows.put(last)


def main() -> None:
  options = workload.parse()
  folder = tempfile.TemporaryDirectory()
  settings = training.settings(
    task='workload',
    workload_model=options.model,
    workload_num_clients=options.population,
    workload_examples=options.examples,
    workload_width=options.width,
    client_batch_size=options.batch_size,
    clients_per_round=options.clients,
    algorithm='fedadam',
    client_learning_rate=workload.CLIENT_RATE,
    server_learning_rate=workload.SERVER_RATE,
    server_adaptivity=workload.SERVER_EPSILON,
    beta_2=workload.SERVER_BETA_2,
    variant='reference',
    total_rounds=options.rounds,
    rounds_per_eval=options.rounds + 1,
    rounds_per_checkpoint=options.rounds + 1,
    num_validation_examples=-1,
    validation_split='test',
    root_output_dir=folder.name,
    **_FLAGS.get(options.contender, {}),
  )
  ids = list(range(options.population))
  drawn = cohorts.build_cohort_fn(ids, clients_per_round=options.clients)
  assert drawn(3) == workload.cohort(options, 3)
  turns = _Turns()

  def make(options):
    del options
    last = [turns.first()]

    def run():
      last[0] = turns.next()

    def loss():
      if not last[0]['round']:
        return last[0]['validation/loss']
      return turns.next()['test/loss']

    return run, loss

  speaker = threading.Thread(target=workload.serve, args=(options, make))
  speaker.start()
  result = training.run(
    settings, say=lambda text: print(text, file=sys.stderr), hooks=[turns]
  )
  turns.finish(result.rows[-1])
  speaker.join()
  folder.cleanup()


if __name__ == '__main__':
  main()
