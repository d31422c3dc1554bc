"""Flags of a run that do not depend on a task, method or optimizer."""

from typing import Annotated
from typing import Literal
from typing import Optional

from tff_adaptive import parameters

_Amount = Annotated[float, parameters.Range(low=0, high=1e9, open_low=True)]
# A standard deviation of logarithms.
_Deviation = Annotated[float, parameters.Range(low=0, high=5)]


class Choices(parameters.Described):
  """Flags from which `resolving` derives settings of other names."""

  preset: Optional[str] = None
  """Published settings, PAPER/TASK/METHOD (main.py list names them); other
  flags override them."""

  task: str = 'digits'
  """Name (main.py list), or MODULE:FUNCTION of your own."""

  algorithm: Optional[str] = None
  """The method; determined by the two optimizers unless given."""

  client_optimizer: str = 'delta_sgd'
  """Client optimizer; the algorithm's own if one is given."""

  server_optimizer: str = 'adam'
  """Server optimizer; the algorithm's own if one is given."""

  client_epochs_per_round: parameters.Count = 1
  """Passes of a client over its examples per round."""

  client_batch_size: Optional[parameters.Count] = None
  """Examples per client batch; the task's own unless given."""

  max_elements_per_client: Optional[parameters.Count] = None
  """Largest number of examples of a client per round; all unless given."""

  num_validation_examples: parameters.CountOrAll = 10_000
  """Validation examples to evaluate on; -1 for all."""

  evaluate_clients_under_dp: bool = False
  """Allow figures of single clients, which no noise protects, in a run with
  differential privacy."""

  record: Optional[str] = None
  """A tracker that records the run beside its own files: mlflow:URI (a server
  or a database) or wandb:PROJECT; may be given several times, or several
  separated by commas."""

  cache_dir: Optional[str] = None
  """Folder with the task's data files."""

  data: Literal['native', 'synthetic'] = 'native'
  """The task's own data, or small synthetic data of the same shapes."""


class AsGiven(parameters.Described):
  """Settings of a run, one flag each, with the same names and values.

  `run_flags` fills in values that depend on other flags or the task.
  """

  total_rounds: parameters.Count = 200
  """Rounds of training."""

  clients_per_round: parameters.Count = 10
  """Clients per round (cohort size); all clients of a task that has fewer,
  unless given."""

  max_rejected_clients: Optional[parameters.NonNegativeInt] = None
  """Largest number of clients per round that may be left out, because their
  update is not finite or their data raise an error, before the run stops;
  unlimited unless given."""

  client_steps_per_round: Optional[parameters.Count] = None
  """Largest number of batches of a client per round; all unless given."""

  client_seconds_per_example: Optional[_Amount] = None
  """Virtual seconds per example of a client, mean over clients; no time is
  modelled unless given."""

  client_seconds_per_step: Optional[_Amount] = None
  """Virtual seconds per gradient of a batch, mean over clients, in place of
  client_seconds_per_example; a local step takes as many gradients as the method
  needs."""

  client_mbit_down: Optional[_Amount] = None
  """Download rate of clients in Mbit/s, median over clients; downloading takes
  no time unless given."""

  client_mbit_up: Optional[_Amount] = None
  """Upload rate of clients in Mbit/s, median over clients; uploading takes no
  time unless given."""

  client_mbit_spread: Optional[_Deviation] = None
  """Spread of both rates between clients: the standard deviation of their
  normally distributed logarithms; all equal unless given."""

  client_latency: Optional[
    Annotated[float, parameters.Range(low=0, high=1000000.0)]
  ] = None
  """Virtual seconds per message in addition to its transfer time, each way."""

  client_devices: Optional[Literal['cross_device', 'cross_silo']] = None
  """Measured figures of phones or of silos, for those of the six flags of
  steps, speed, links and latency that are not given."""

  client_speed_spread: Optional[_Deviation] = None
  """Spread of computing speed between clients: the standard deviation of its
  normally distributed logarithm; all equal unless given."""

  client_speed_jitter: Optional[_Deviation] = None
  """The same for one client from round to round."""

  client_dropout: Optional[parameters.Fraction] = None
  """Probability that a sampled client never answers."""

  client_behaviour: Optional[str] = None
  """A CSV file with the columns client, seconds_per_example and dropout, for
  clients with known figures."""

  client_availability: Optional[str] = None
  """A CSV file of the times at which clients can be sampled, with the columns
  client, from and to (hours) or client and block (blocks take turns); always
  unless given."""

  rounds_per_day: Optional[parameters.Count] = None
  """Rounds in 24 hours, for client_availability by the hour; 24 unless
  given."""

  rounds_per_block: Optional[parameters.Count] = None
  """Rounds that a block of client_availability lasts; 1 unless given."""

  over_selection: Optional[
    Annotated[float, parameters.Range(low=1, high=1000)]
  ] = None
  """Sample this many times clients_per_round clients, and use the first
  clients_per_round answers; 1 unless given."""

  deadline: Optional[_Amount] = None
  """Virtual seconds after which answers of a round are ignored; in an
  asynchronous run, after which a client is given up."""

  asynchronous: bool = False
  """Asynchronous training (FedBuff): clients train on the model of the time
  when they start, and the server takes a step, which is a round, whenever
  clients_per_round of them have answered."""

  concurrency: Optional[parameters.Count] = None
  """Number of clients that train at once in an asynchronous run;
  clients_per_round unless given."""

  staleness: Optional[Literal['polynomial', 'none']] = None
  """Weight of an update after t server steps since its client started:
  polynomial, the default, 1 / sqrt(1 + t); none, 1."""

  initial_weights: Optional[str] = None
  """Initial weights, in place of weights drawn by the seed: the folder of an
  export or of a run, or a Keras file."""

  freeze: Optional[str] = None
  """Variables that are not trained and not sent, as patterns with * and ? of
  names such as dense/kernel; may be given several times, or several separated
  by commas."""

  adapters: Optional[parameters.Count] = None
  """Rank of low-rank adapters (LoRA) on dense and attention kernels, which are
  trained and sent in place of all weights; no adapters unless given."""

  adapter_rule: Optional[Literal['lora', 'ffa', 'fedex']] = None
  """Training of the adapters' factors A and B: lora, the default, trains and
  averages both; ffa B alone; fedex both, and adds the error of averaging to the
  kernels."""

  adapter_alpha: Optional[parameters.Positive] = None
  """Scale of the adapters times their rank; the rank unless given."""

  adapter_kernels: Optional[str] = None
  """Kernels that have adapters, as patterns like those of freeze; all unless
  given."""

  adapter_beside: Optional[str] = None
  """Other variables that are trained beside the adapters, such as those of a
  new classifier, as patterns; none unless given."""

  client_datasets_random_seed: parameters.Seed32 = 1
  """Seed of the sampling of clients, as in the reference."""

  seed: parameters.NonNegativeInt = 0
  """Seed of all other randomness."""

  target_epsilon: Optional[parameters.Positive] = None
  """Find the noise multiplier that keeps the run within this epsilon, in place
  of --dp_noise_multiplier."""

  dp_delta: Optional[parameters.Share] = None
  """The delta at which epsilon is stated; 1 / clients^1.1 unless given."""

  dp_sampling: Literal['fixed', 'poisson'] = 'fixed'
  """Sampling assumed by the accounting: fixed, cohorts of fixed size as they
  are drawn; poisson, each client independently, as in papers."""

  dp_accounting: Literal['pld', 'rdp'] = 'pld'
  """Accounting by privacy loss distributions (pld) or Renyi orders (rdp)."""

  rounds_per_eval: parameters.Count = 10
  """Number of rounds between evaluations."""

  validation_split: Optional[Literal['examples', 'clients', 'test']] = None
  """Data of evaluations: test examples set apart, clients held out from
  training, or the test split itself, as in papers and presets."""

  validation_share: Optional[parameters.Share] = None
  """Fraction that is set apart; half of the test examples, or a tenth of the
  clients, unless given."""

  validation_sample: Literal['fixed', 'drawn'] = 'fixed'
  """Whether the validation examples stay the same or are drawn anew for every
  evaluation."""

  target_metric: Optional[str] = None
  """NAME:VALUE, such as accuracy:0.95; the run ends at the first evaluation on
  validation data that reaches it. NAME also determines the best round; the
  task's first metric unless given."""

  patience: Optional[parameters.Count] = None
  """Number of successive evaluations without improvement after which the run
  ends."""

  ema_decay: Optional[parameters.Fraction] = None
  """Decay of an average of the model over rounds, which is evaluated too; no
  average unless given."""

  evaluate_clients: Optional[str] = None
  """Number of clients, drawn by the seed, on which to test the trained model
  one by one, or all; none unless given."""

  client_test_share: Optional[parameters.Share] = None
  """Fraction of each client's examples held out for that test, if the task has
  no test data by client; a fifth unless given."""

  finetune_epochs: Optional[parameters.Count] = None
  """Passes over a client's own training data, after which the model is tested
  on that client once more."""

  finetune_learning_rate: Optional[parameters.Positive] = None
  """Learning rate of the SGD steps in these passes; the clients' own unless
  given."""

  rounds_per_checkpoint: parameters.Count = 50
  """Number of rounds between checkpoints."""

  experiment_name: Optional[str] = None
  """Name of the run's folder; derived from the settings unless given."""

  root_output_dir: str = 'runs'
  """Folder that contains the runs' folders."""

  cache_mib: parameters.NonNegativeInt = 2048
  """Memory for decoded examples, in MiB."""

  threads_per_operation: parameters.Count = 1
  """Threads per TensorFlow operation. More speed up wide models if fewer
  clients train at once than there are cores; they change the rounding of sums
  and are thus a setting of the run."""

  client_states: Literal['auto', 'memory', 'disk'] = 'auto'
  """Where to store what clients keep between rounds (scaffold, feddyn and
  others): in memory if it fits, else in a file in the run's folder."""

  client_state_mib: parameters.NonNegativeInt = 2048
  """Memory for client states, in MiB."""
