"""Flags of a run that do not depend on a task, method or optimizer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Optional

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
  """Name of a task (main.py list), or a user-defined MODULE:FUNCTION."""

  algorithm: Optional[str] = None
  """Method; by default determined by the two optimizers."""

  client_optimizer: str = 'delta_sgd'
  """Client optimizer; with an algorithm, by default the algorithm's own."""

  server_optimizer: str = 'adam'
  """Server optimizer; with an algorithm, by default the algorithm's own."""

  client_epochs_per_round: parameters.Count = 1
  """Number of epochs over a client's examples per round."""

  client_batch_size: Optional[parameters.Count] = None
  """Client batch size; by default the task's own."""

  max_elements_per_client: Optional[parameters.Count] = None
  """Maximum number of examples per client and round; by default all."""

  num_validation_examples: parameters.CountOrAll = 10_000
  """Validation examples per evaluation; -1 for all."""

  evaluate_clients_under_dp: bool = False
  """Allow metrics of individual clients, which no noise protects, in a run with
  differential privacy.
  """

  trackers: Optional[str] = None
  """Experiment tracker to log the run to, besides its own files: mlflow:URI (a
  server or a database) or wandb:PROJECT. Repeatable, or comma-separated.
  """

  cache_dir: Optional[str] = None
  """Folder with the task's data files."""

  data: Literal['native', 'synthetic'] = 'native'
  """Real data, or small synthetic data of the same shapes."""


class AsGiven(parameters.Described):
  """Settings of a run, one flag each, with the same names and values.

  `resolving` fills in values that depend on other flags or the task.
  """

  total_rounds: parameters.Count = 200
  """Rounds of training."""

  clients_per_round: parameters.Count = 10
  """Clients per round (cohort size); the default is reduced to the number of
  clients of a built-in task.
  """

  max_rejected_clients: Optional[parameters.NonNegativeInt] = None
  """Maximum number of clients excluded per round, because their update is not
  finite or they raise an error, before the run stops; by default
  unlimited.
  """

  client_steps_per_round: Optional[parameters.Count] = None
  """Maximum number of batches per client and round; by default all."""

  client_seconds_per_example: Optional[_Amount] = None
  """Virtual seconds per example of a client, mean over clients; by default no
  time is modelled.
  """

  client_seconds_per_step: Optional[_Amount] = None
  """Virtual seconds per batch gradient, mean over clients, instead of
  client_seconds_per_example. The method determines the number of gradients per
  local step.
  """

  client_mbit_down: Optional[_Amount] = None
  """Download rate of clients in Mbit/s, median over clients; by default
  downloads take no time.
  """

  client_mbit_up: Optional[_Amount] = None
  """Upload rate of clients in Mbit/s, median over clients; by default uploads
  take no time.
  """

  client_latency: Optional[
    Annotated[float, parameters.Range(low=0, high=1000000.0)]
  ] = None
  """Virtual seconds per message in addition to its transfer time, each way."""

  client_devices: Optional[Literal['cross_device', 'cross_silo']] = None
  """Device profile, phones or silos, measured: defaults for the flags of
  step time, speed, links and latency.
  """

  client_speed_spread: Optional[_Deviation] = None
  """Spread of compute speed across clients: the sigma of a log-normal
  distribution; by default all are equal.
  """

  client_dropout: Optional[parameters.Fraction] = None
  """Probability that a sampled client drops out."""

  over_selection: Optional[
    Annotated[float, parameters.Range(low=1, high=1000)]
  ] = None
  """Over-selection factor: sample this many times clients_per_round clients and
  use the first clients_per_round answers; by default 1.
  """

  deadline: Optional[_Amount] = None
  """Deadline of a round in virtual seconds, after which answers are ignored; in
  an asynchronous run, the deadline of each client.
  """

  asynchronous: bool = False
  """Asynchronous training (FedBuff): clients start from the current model, and
  the server takes a step (a round) whenever clients_per_round of them have
  answered.
  """

  concurrency: Optional[parameters.Count] = None
  """Number of clients in training at any time in an asynchronous run; by
  default clients_per_round.
  """

  staleness: Optional[Literal['polynomial', 'none']] = None
  """Staleness weight of an update, t server steps after its client started:
  polynomial, the default, 1 / sqrt(1 + t); none, 1.
  """

  initial_weights: Optional[str] = None
  """Initial weights, instead of a random initialization: the folder of an
  export or of a run, or a Keras file.
  """

  freeze: Optional[str] = None
  """Variables that are neither trained nor sent: names such as dense/kernel,
  with the wildcards * and ?. Repeatable, or comma-separated.
  """

  mixed_precision: Optional[Literal['bfloat16', 'float16']] = None
  """Precision in which the layers of the model compute, by the policy of Keras;
  weights, optimizers and sums stay float32. By default they compute in float32,
  too.
  """

  lora_rank: Optional[parameters.Count] = None
  """Rank of low-rank adapters (LoRA) on dense and attention kernels, trained
  and sent instead of all weights; by default none.
  """

  lora_rule: Optional[Literal['lora', 'ffa', 'fedex']] = None
  """Rule for the adapter factors A and B: lora, the default, trains and
  averages both; ffa trains only B; fedex trains both and adds the averaging
  error to the kernels.
  """

  lora_alpha: Optional[parameters.Positive] = None
  """Numerator of the adapter scale alpha / rank; by default the rank."""

  lora_targets: Optional[str] = None
  """Kernels with adapters, as patterns like those of freeze; by default all."""

  lora_also_train: Optional[str] = None
  """Variables trained besides the adapters, such as those of a new classifier,
  as patterns; by default none.
  """

  client_datasets_random_seed: Optional[parameters.Seed32] = None
  """Seed for the sampling of clients; by default 1, in private runs seed."""

  seed: parameters.NonNegativeInt = 0
  """Seed of a run, except cohorts and data (--TASK_seed)."""

  target_epsilon: Optional[parameters.Positive] = None
  """Privacy budget: calibrates the noise multiplier to this epsilon, instead of
  --dp_noise_multiplier.
  """

  dp_delta: Optional[parameters.Share] = None
  """Delta of the privacy guarantee; by default 1 / clients^1.1."""

  dp_sampling: Literal['fixed', 'poisson'] = 'fixed'
  """Sampling assumed by the accounting: fixed, cohorts of fixed size, as in
  this simulation; poisson, each client independently, as in papers.
  """

  dp_accounting: Literal['pld', 'rdp'] = 'pld'
  """Privacy accountant: privacy loss distributions (pld) or Renyi divergences
  (rdp).
  """

  rounds_per_eval: parameters.Count = 10
  """Number of rounds between evaluations."""

  validation_split: Optional[Literal['examples', 'clients', 'test']] = None
  """Validation data: held-out test examples, clients held out from training, or
  the test split itself, as in papers and presets.
  """

  validation_share: Optional[parameters.Share] = None
  """Fraction held out for validation; by default half of the test examples or a
  tenth of the clients.
  """

  validation_sample: Literal['fixed', 'resampled'] = 'fixed'
  """Whether every evaluation uses the same validation examples or a new
  sample.
  """

  target_metric: Optional[str] = None
  """Stopping criterion NAME:VALUE, such as accuracy:0.95: the run ends at the
  first evaluation on validation data that reaches it. NAME also determines the
  best round; by default the task's first metric does. NAME:max and NAME:min
  name a metric to be highest or lowest, without a value to stop at.
  """

  metric_direction: Optional[str] = None
  """Whether metrics are better when higher or lower, NAME:max or NAME:min,
  several separated by commas. Needed for metrics that are not Keras' own, to
  choose a best round by them, stop early, tune or compare.
  """

  patience: Optional[parameters.Count] = None
  """Number of consecutive evaluations without improvement after which the run
  ends (early stopping).
  """

  ema_decay: Optional[parameters.Fraction] = None
  """Decay of an exponential moving average of the model over rounds, which is
  also evaluated; by default none.
  """

  evaluate_clients: Optional[str] = None
  """Number of clients, sampled by the seed, on which the trained model is
  tested individually, or all; by default none.
  """

  client_test_share: Optional[parameters.Share] = None
  """Fraction of each client's examples held out for that test, if the task has
  no test data per client; by default a fifth.
  """

  finetune_epochs: Optional[parameters.Count] = None
  """Epochs of fine-tuning on a client's training data, after which the model is
  tested on that client again.
  """

  finetune_learning_rate: Optional[parameters.Positive] = None
  """Learning rate of SGD in these epochs; by default the clients' own."""

  rounds_per_checkpoint: parameters.Count = 50
  """Number of rounds between checkpoints."""

  experiment_name: Optional[str] = None
  """Name of the run's folder; by default derived from the settings."""

  root_output_dir: str = 'runs'
  """Parent folder of all runs."""

  cache_mib: parameters.NonNegativeInt = 2048
  """Memory for decoded examples, in MiB."""

  threads_per_operation: parameters.Count = 1
  """Threads per TensorFlow operation. More threads speed up wide models if
  fewer clients train at once than there are cores. They change the rounding of
  sums and are thus a setting of the run.
  """

  vectorize_clients: Optional[Literal['auto', 'true', 'false']] = None
  """Whether all clients of a round take each local step together (true) or
  train one at a time (false); by default whichever is faster for the model
  (auto). It changes the rounding of sums and is thus a setting of the run.
  """

  jit_compile: Optional[Literal['auto', 'true', 'false']] = None
  """Whether XLA compiles the steps of clients that train together; by default
  on a GPU (auto). It changes the rounding of sums and is thus a setting of the
  run.
  """

  matmul_precision: Optional[Literal['float32', 'tf32']] = None
  """Precision of float32 matrix products on a GPU: tf32 is faster and rounds to
  10 mantissa bits. Default float32. Part of the run's identity.
  """

  client_state_mib: parameters.NonNegativeInt = 2048
  """Memory for client states (scaffold, feddyn and others), in MiB; a file in
  the run's folder holds what exceeds it.
  """


_COMPUTING = (
  'client_seconds_per_example',
  'client_seconds_per_step',
  'client_devices',
)
_TIME = (*_COMPUTING, 'client_mbit_down', 'client_mbit_up', 'client_latency')
# If none of these is given, every client answers immediately.
ABSENCE = (*_TIME, 'client_dropout')
# Flags that nothing uses unless one of the listed flags is given.
NEEDS: Mapping[str, Sequence[str]] = {
  'client_speed_spread': _COMPUTING,
  'deadline': _TIME,
  'asynchronous': _TIME,
  'over_selection': ABSENCE,
  **dict.fromkeys(('concurrency', 'staleness'), ('asynchronous',)),
  **dict.fromkeys(
    ('client_test_share', 'finetune_epochs', 'evaluate_clients_under_dp'),
    ('evaluate_clients',),
  ),
  'finetune_learning_rate': ('finetune_epochs',),
  **dict.fromkeys(
    ('lora_rule', 'lora_alpha', 'lora_targets', 'lora_also_train'),
    ('lora_rank',),
  ),
  **dict.fromkeys(
    ('target_epsilon', 'dp_delta', 'dp_sampling', 'dp_accounting'),
    ('dp_clip_norm', 'dp_adaptive_clipping'),
  ),
}
# Flags that methods without clients do not use.
OF_CLIENTS = (
  *ABSENCE,
  'client_steps_per_round',
  'asynchronous',
  'vectorize_clients',
  'jit_compile',
  'max_rejected_clients',
)
