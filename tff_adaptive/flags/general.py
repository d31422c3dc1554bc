"""Flags that depend on no task, method or optimizer: declarations to read."""

import dataclasses
from typing import Annotated
from typing import Literal
from typing import Optional

from tff_adaptive import parameters


def choices(
  *,
  preset: Optional[str] = None,
  task: str = 'digits',
  algorithm: Optional[str] = None,
  client_optimizer: str = 'delta_sgd',
  server_optimizer: str = 'adam',
  client_epochs_per_round: parameters.Count = 1,
  client_batch_size: Optional[parameters.Count] = None,
  max_elements_per_client: Optional[parameters.Count] = None,
  num_validation_examples: parameters.CountOrAll = 10_000,
  evaluate_clients_under_dp: bool = False,
  record: Optional[str] = None,
  cache_dir: Optional[str] = None,
  data: Literal['native', 'synthetic'] = 'native',
) -> None:
  """Does nothing; `resolving` makes settings of the values.

  Args:
    preset: Published settings, PAPER/TASK/METHOD (main.py list names them);
      flags given beside it override its own.
    task: Name (main.py list), or MODULE:FUNCTION of your own.
    algorithm: The method; unless given, the two optimizers decide it.
    client_optimizer: What clients train with; the algorithm's own where one is
      given.
    server_optimizer: What the server applies updates with; the algorithm's own
      where one is given.
    client_epochs_per_round: Passes of a client over its examples in a round.
    client_batch_size: Examples in a client's batch; the task's own unless
      given.
    max_elements_per_client: Most examples of a client in a round; all unless
      given.
    num_validation_examples: Validation examples to evaluate on; -1 for all.
    evaluate_clients_under_dp: Allow figures of single clients, which no noise
      protects, in a run with differential privacy.
    record: A tracker that gets the run's numbers beside its own files:
      mlflow:URI (a server or a database) or wandb:PROJECT; may be given several
      times, or several with commas between.
    cache_dir: Folder with the task's data files.
    data: The task's own data, or small made-up data of the same shapes.
  """


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsGiven:
  """The settings of a run that are what flags of their names say.

  `run_flags` fills in what another flag or the task decides unless given.

  Attributes:
    total_rounds: Rounds of training.
    clients_per_round: Clients that take part in a round; all of a task that has
      fewer, unless given.
    max_rejected_clients: Clients of a round that may be left out, because their
      update is not finite or their data raise an error, before the run stops;
      any number unless given.
    client_steps_per_round: Most batches of a client in a round; all unless
      given.
    client_seconds_per_example: Virtual seconds that a client takes for an
      example, mean over clients; no time is modelled unless given.
    client_speed_spread: How much clients differ in that: the standard deviation
      of its logarithm, which is normal; all alike unless given.
    client_speed_jitter: The same of one client from round to round.
    client_dropout: Probability that a client that is drawn never answers.
    client_behaviour: A CSV file with the columns client, seconds_per_example
      and dropout, for clients whose figures are known.
    over_selection: Draws so many times clients_per_round clients, of which the
      first clients_per_round to answer count; 1 unless given.
    deadline: Virtual seconds after which no answer of a round counts; of an
      asynchronous run, after which a client is given up.
    asynchronous: Clients train on the model that they received when they began,
      and the server takes a step, which is a round, whenever clients_per_round
      of them have answered (FedBuff).
    concurrency: Clients that train at once in an asynchronous run;
      clients_per_round unless given.
    staleness: How an update counts on which the server has taken t steps since
      its client began: polynomial, the default, as 1 / sqrt(1 + t) of itself;
      none, as it is.
    initial_weights: Where training starts, in place of weights drawn by the
      seed: the folder of an export or of a run, or a file of Keras.
    freeze: Variables that are not trained and of which no update is sent, as
      patterns with * and ? of names such as dense/kernel; may be given several
      times, or several with commas between.
    client_datasets_random_seed: Decides which clients take part, as in the
      reference.
    seed: Decides everything else that is random.
    target_epsilon: Find the noise multiplier that keeps the run within this
      epsilon, in place of --dp_noise_multiplier.
    dp_delta: The delta that epsilon is stated at; 1 / clients^1.1 unless given.
    dp_sampling: How cohorts are taken to be drawn: as they are, or
      independently client by client, as papers account.
    dp_accounting: By privacy loss distributions or Renyi orders.
    rounds_per_eval: Rounds from one evaluation to the next.
    validation_split: What evaluations look at: test examples set apart, clients
      held out, or the test split itself, as papers and presets do.
    validation_share: How much is set apart; half of the test examples, or a
      tenth of the clients, unless given.
    validation_sample: Whether these stay the same or are drawn anew.
    target_metric: NAME:VALUE, such as accuracy:0.95; the run ends at the first
      evaluation on validation data that reaches it. It also says which round is
      best; the task's first metric unless given.
    patience: Evaluations in a row without a better one, after which the run
      ends.
    ema_decay: Decay of an average of the model over rounds, which is evaluated
      beside it; none unless given.
    evaluate_clients: Clients to test the trained model on one by one, a number
      drawn by the seed or all; nobody unless given.
    client_test_share: How much of every client's examples is held out of
      training for that, where the task has no test data by client; a fifth
      unless given.
    finetune_epochs: Passes over a client's own training data after which the
      model is tested on that client once more.
    finetune_learning_rate: Of the SGD steps in these passes; the clients' own
      unless given.
    rounds_per_checkpoint: Rounds from one checkpoint to the next.
    experiment_name: Name of the run's folder; made from the settings unless
      given.
    root_output_dir: Where runs have their folders.
    cache_mib: Memory for decoded examples, in MiB.
    client_states: Where what clients keep between rounds is (scaffold, moon,
      feddyn, fedlesam, fedcams): in memory if it fits, else in a file in the
      run's folder.
    client_state_mib: Memory for it, in MiB.
  """

  total_rounds: parameters.Count = 200
  clients_per_round: parameters.Count = 10
  max_rejected_clients: Optional[parameters.NonNegativeInt] = None
  client_steps_per_round: Optional[parameters.Count] = None
  client_seconds_per_example: Optional[
    Annotated[float, parameters.Range(low=0, high=1e9, open_low=True)]
  ] = None
  client_speed_spread: Optional[
    Annotated[float, parameters.Range(low=0, high=5)]
  ] = None
  client_speed_jitter: Optional[
    Annotated[float, parameters.Range(low=0, high=5)]
  ] = None
  client_dropout: Optional[parameters.Fraction] = None
  client_behaviour: Optional[str] = None
  over_selection: Optional[
    Annotated[float, parameters.Range(low=1, high=1000)]
  ] = None
  deadline: Optional[
    Annotated[float, parameters.Range(low=0, high=1e9, open_low=True)]
  ] = None
  asynchronous: bool = False
  concurrency: Optional[parameters.Count] = None
  staleness: Optional[Literal['polynomial', 'none']] = None
  initial_weights: Optional[str] = None
  freeze: Optional[str] = None
  client_datasets_random_seed: parameters.Seed32 = 1
  seed: parameters.NonNegativeInt = 0
  target_epsilon: Optional[parameters.Positive] = None
  dp_delta: Optional[parameters.Share] = None
  dp_sampling: Literal['fixed', 'poisson'] = 'fixed'
  dp_accounting: Literal['pld', 'rdp'] = 'pld'
  rounds_per_eval: parameters.Count = 10
  validation_split: Optional[Literal['examples', 'clients', 'test']] = None
  validation_share: Optional[parameters.Share] = None
  validation_sample: Literal['fixed', 'drawn'] = 'fixed'
  target_metric: Optional[str] = None
  patience: Optional[parameters.Count] = None
  ema_decay: Optional[parameters.Fraction] = None
  evaluate_clients: Optional[str] = None
  client_test_share: Optional[parameters.Share] = None
  finetune_epochs: Optional[parameters.Count] = None
  finetune_learning_rate: Optional[parameters.Positive] = None
  rounds_per_checkpoint: parameters.Count = 50
  experiment_name: Optional[str] = None
  root_output_dir: str = 'runs'
  cache_mib: parameters.NonNegativeInt = 2048
  client_states: Literal['auto', 'memory', 'disk'] = 'auto'
  client_state_mib: parameters.NonNegativeInt = 2048
