"""Flags of a run that depend on no task, method or optimizer."""

from typing import Annotated
from typing import Literal
from typing import Optional

from tff_adaptive import parameters

_Amount = Annotated[float, parameters.Range(low=0, high=1e9, open_low=True)]
# Of a logarithm.
_Deviation = Annotated[float, parameters.Range(low=0, high=5)]


class Choices(parameters.Described):
  """The flags of which `resolving` makes settings of other names."""

  preset: Optional[str] = None
  """Published settings, PAPER/TASK/METHOD (main.py list names them); flags
  given beside it override its own."""

  task: str = 'digits'
  """Name (main.py list), or MODULE:FUNCTION of your own."""

  algorithm: Optional[str] = None
  """The method; unless given, the two optimizers decide it."""

  client_optimizer: str = 'delta_sgd'
  """What clients train with; the algorithm's own where one is given."""

  server_optimizer: str = 'adam'
  """What the server applies updates with; the algorithm's own where one is
  given."""

  client_epochs_per_round: parameters.Count = 1
  """Passes of a client over its examples in a round."""

  client_batch_size: Optional[parameters.Count] = None
  """Examples in a client's batch; the task's own unless given."""

  max_elements_per_client: Optional[parameters.Count] = None
  """Most examples of a client in a round; all unless given."""

  num_validation_examples: parameters.CountOrAll = 10_000
  """Validation examples to evaluate on; -1 for all."""

  evaluate_clients_under_dp: bool = False
  """Allow figures of single clients, which no noise protects, in a run with
  differential privacy."""

  record: Optional[str] = None
  """A tracker that gets the run's numbers beside its own files: mlflow:URI (a
  server or a database) or wandb:PROJECT; may be given several times, or several
  with commas between."""

  cache_dir: Optional[str] = None
  """Folder with the task's data files."""

  data: Literal['native', 'synthetic'] = 'native'
  """The task's own data, or small made-up data of the same shapes."""


class AsGiven(parameters.Described):
  """The settings of a run that have the names and values of their flags.

  `run_flags` fills in what another flag or the task decides unless given.
  """

  total_rounds: parameters.Count = 200
  """Rounds of training."""

  clients_per_round: parameters.Count = 10
  """Clients that take part in a round; all of a task that has fewer, unless
  given."""

  max_rejected_clients: Optional[parameters.NonNegativeInt] = None
  """Clients of a round that may be left out, because their update is not finite
  or their data raise an error, before the run stops; any number unless
  given."""

  client_steps_per_round: Optional[parameters.Count] = None
  """Most batches of a client in a round; all unless given."""

  client_seconds_per_example: Optional[_Amount] = None
  """Virtual seconds that a client takes for an example, mean over clients; no
  time is modelled unless given."""

  client_seconds_per_step: Optional[_Amount] = None
  """Virtual seconds that a client takes for a gradient of a batch, mean over
  clients, in place of client_seconds_per_example; a local step has as many as
  the method needs."""

  client_mbit_down: Optional[_Amount] = None
  """Mbit/s at which a client receives, median over clients; receiving takes no
  time unless given."""

  client_mbit_up: Optional[_Amount] = None
  """Mbit/s at which a client sends, likewise."""

  client_mbit_spread: Optional[_Deviation] = None
  """How much clients differ in both rates: the standard deviation of their
  logarithms, which are normal; all alike unless given."""

  client_latency: Optional[
    Annotated[float, parameters.Range(low=0, high=1000000.0)]
  ] = None
  """Virtual seconds that a message takes beside its bytes, each way."""

  client_devices: Optional[Literal['cross_device', 'cross_silo']] = None
  """Stands for measured figures of phones or of silos in place of those of the
  six flags of steps, speed, links and latency that are not given."""

  client_speed_spread: Optional[_Deviation] = None
  """How much clients differ in that: the standard deviation of its logarithm,
  which is normal; all alike unless given."""

  client_speed_jitter: Optional[_Deviation] = None
  """The same of one client from round to round."""

  client_dropout: Optional[parameters.Fraction] = None
  """Probability that a client that is drawn never answers."""

  client_behaviour: Optional[str] = None
  """A CSV file with the columns client, seconds_per_example and dropout, for
  clients whose figures are known."""

  client_availability: Optional[str] = None
  """A CSV file of when clients can be drawn, with the columns client, from and
  to (hours) or client and block (blocks take turns); always unless given."""

  rounds_per_day: Optional[parameters.Count] = None
  """Rounds in 24 hours, for client_availability by the hour; 24 unless
  given."""

  rounds_per_block: Optional[parameters.Count] = None
  """Rounds that a block of client_availability lasts; 1 unless given."""

  over_selection: Optional[
    Annotated[float, parameters.Range(low=1, high=1000)]
  ] = None
  """Draws so many times clients_per_round clients, of which the first
  clients_per_round to answer count; 1 unless given."""

  deadline: Optional[_Amount] = None
  """Virtual seconds after which no answer of a round counts; of an asynchronous
  run, after which a client is given up."""

  asynchronous: bool = False
  """Clients train on the model that they received when they began, and the
  server takes a step, which is a round, whenever clients_per_round of them have
  answered (FedBuff)."""

  concurrency: Optional[parameters.Count] = None
  """Clients that train at once in an asynchronous run; clients_per_round unless
  given."""

  staleness: Optional[Literal['polynomial', 'none']] = None
  """How an update counts on which the server has taken t steps since its client
  began: polynomial, the default, as 1 / sqrt(1 + t) of itself; none, as it
  is."""

  initial_weights: Optional[str] = None
  """Where training starts, in place of weights drawn by the seed: the folder of
  an export or of a run, or a file of Keras."""

  freeze: Optional[str] = None
  """Variables that are not trained and of which no update is sent, as patterns
  with * and ? of names such as dense/kernel; may be given several times, or
  several with commas between."""

  adapters: Optional[parameters.Count] = None
  """Rank of low-rank adapters (LoRA) on dense and attention kernels, which are
  trained, and sent, in place of all weights; none unless given."""

  adapter_rule: Optional[Literal['lora', 'ffa', 'fedex']] = None
  """Whether A and B of the adapters are trained and averaged (lora, the
  default), B alone (ffa), or both, with what that averages wrongly added to the
  kernels (fedex)."""

  adapter_alpha: Optional[parameters.Positive] = None
  """Scale of the adapters times their rank; the rank unless given."""

  adapter_kernels: Optional[str] = None
  """Kernels that have adapters, as patterns like those of freeze; all unless
  given."""

  adapter_beside: Optional[str] = None
  """Other variables that are trained as they are beside the adapters, such as
  those of a new classifier, as patterns; none unless given."""

  client_datasets_random_seed: parameters.Seed32 = 1
  """Decides which clients take part, as in the reference."""

  seed: parameters.NonNegativeInt = 0
  """Decides everything else that is random."""

  target_epsilon: Optional[parameters.Positive] = None
  """Find the noise multiplier that keeps the run within this epsilon, in place
  of --dp_noise_multiplier."""

  dp_delta: Optional[parameters.Share] = None
  """The delta that epsilon is stated at; 1 / clients^1.1 unless given."""

  dp_sampling: Literal['fixed', 'poisson'] = 'fixed'
  """How cohorts are taken to be drawn: as they are, or independently client by
  client, as papers account."""

  dp_accounting: Literal['pld', 'rdp'] = 'pld'
  """By privacy loss distributions or Renyi orders."""

  rounds_per_eval: parameters.Count = 10
  """Rounds from one evaluation to the next."""

  validation_split: Optional[Literal['examples', 'clients', 'test']] = None
  """What evaluations look at: test examples set apart, clients held out, or the
  test split itself, as papers and presets do."""

  validation_share: Optional[parameters.Share] = None
  """How much is set apart; half of the test examples, or a tenth of the
  clients, unless given."""

  validation_sample: Literal['fixed', 'drawn'] = 'fixed'
  """Whether these stay the same or are drawn anew."""

  target_metric: Optional[str] = None
  """NAME:VALUE, such as accuracy:0.95; the run ends at the first evaluation on
  validation data that reaches it. It also says which round is best; the task's
  first metric unless given."""

  patience: Optional[parameters.Count] = None
  """Evaluations in a row without a better one, after which the run ends."""

  ema_decay: Optional[parameters.Fraction] = None
  """Decay of an average of the model over rounds, which is evaluated beside it;
  none unless given."""

  evaluate_clients: Optional[str] = None
  """Clients to test the trained model on one by one, a number drawn by the seed
  or all; nobody unless given."""

  client_test_share: Optional[parameters.Share] = None
  """How much of every client's examples is held out of training for that, where
  the task has no test data by client; a fifth unless given."""

  finetune_epochs: Optional[parameters.Count] = None
  """Passes over a client's own training data after which the model is tested on
  that client once more."""

  finetune_learning_rate: Optional[parameters.Positive] = None
  """Of the SGD steps in these passes; the clients' own unless given."""

  rounds_per_checkpoint: parameters.Count = 50
  """Rounds from one checkpoint to the next."""

  experiment_name: Optional[str] = None
  """Name of the run's folder; made from the settings unless given."""

  root_output_dir: str = 'runs'
  """Where runs have their folders."""

  cache_mib: parameters.NonNegativeInt = 2048
  """Memory for decoded examples, in MiB."""

  threads_per_operation: parameters.Count = 1
  """Threads that TensorFlow divides an operation into. More make wide models
  quicker where fewer clients train at once than there are cores; sums are then
  rounded otherwise, so that it is a setting of the run."""

  client_states: Literal['auto', 'memory', 'disk'] = 'auto'
  """Where what clients keep between rounds is (scaffold, moon, feddyn,
  fedlesam, fedcams): in memory if it fits, else in a file in the run's
  folder."""

  client_state_mib: parameters.NonNegativeInt = 2048
  """Memory for it, in MiB."""
