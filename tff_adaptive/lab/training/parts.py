"""The parts of a run, built from its settings."""

import contextlib
import dataclasses
import fnmatch
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tasks import builders
from tasks import client_data
from tff_adaptive import adapters
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import processes
from tff_adaptive import runtime
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import description
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training import asynchronous
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import traffic
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.data import remote_data
from tff_adaptive.lab.training.evaluation import (
  client_tests as client_tests_lib,
)
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.evaluation import validation
from tff_adaptive.lab.training.loop import centralized
from tff_adaptive.lab.training.loop import early_stopping
from tff_adaptive.lab.training.loop import loop
from tff_adaptive.lab.training.loop import rounds as rounds_lib
from tff_adaptive.lab.training.participation import (
  availability as availability_lib,
)
from tff_adaptive.lab.training.participation import (
  system_model as system_model_lib,
)


@dataclasses.dataclass(frozen=True)
class Built:
  """The learning process of a configuration, and its components.

  Attributes:
    ledger: The privacy accountant; `None` for a run without privacy.
    components: The optimizers and other components of the method.
    process: The learning process; `None` for a method without clients.
  """

  ledger: Optional[accounting.Ledger]
  components: building.Components
  process: Optional[processes.Process]


# The settings that `prepare` uses, besides the task and its options.
PREPARED_BY = (
  'seed',
  'freeze',
  'mixed_precision',
  'lora_rank',
  'lora_rule',
  'lora_alpha',
  'lora_targets',
  'lora_also_train',
  'validation_split',
  'validation_share',
  'evaluate_clients',
  'client_test_share',
)


def prepare(
  task: tff.simulation.baselines.BaselineTask, settings: settings_lib.Settings
) -> tff.simulation.baselines.BaselineTask:
  """Prepares a task for a run: frozen and adapted, with held out data apart.

  Args:
    task: The task, as `tasks.create` returns it.
    settings: The run's settings.

  Returns:
    The task. Its datasets have the attribute `client_tests`: per-client test
    data, `None` without any.

  Raises:
    SettingsError: If the model or the data do not have what is asked for.
  """
  model_fn = task.model_fn
  if settings.mixed_precision is not None:
    model_fn = models.in_mixed_precision(model_fn, settings.mixed_precision)
  model_fn = models.numbered_anew(model_fn)
  model_fn = _adapt(_freeze(model_fn, settings.freeze), settings)
  old = task.datasets
  train, held_out = validation.hold_out_clients(old, settings)
  tests = client_tests_lib.by_client(train, old.test_data)
  if settings.evaluate_clients is not None and tests is None:
    assert settings.client_test_share is not None
    train, tests = client_tests_lib.split(
      train, settings.client_test_share, settings.seed
    )
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=train,
    test_data=old.test_data,
    validation_data=held_out,
    train_preprocess_fn=old.train_preprocess_fn,
    eval_preprocess_fn=old.eval_preprocess_fn,
  )
  datasets.client_tests = tests
  return models.CheckedTask(datasets, model_fn)


def _freeze(
  model_fn: builders.ModelFn, patterns: Optional[str]
) -> builders.ModelFn:
  """Freezes variables of a model by comma-separated name patterns.

  Raises:
    SettingsError: If a pattern matches no variable, or together they match all.
  """
  if patterns is None:
    return model_fn
  names = models.variable_names(model_fn)
  chosen = _chosen('freeze', patterns, names)
  if chosen >= {*names}:
    raise errors.SettingsError(
      f'--freeze={patterns} leaves no variable to train; the model has '
      f'{", ".join(names)}.'
    )
  return builders.freeze(model_fn, chosen.__contains__)


def _chosen(flag: str, patterns: str, names: Sequence[str]) -> set[str]:
  """Returns the names of the variables that match a flag's patterns.

  Raises:
    SettingsError: If a pattern matches none.
  """
  chosen: set[str] = set()
  for pattern in patterns.split(','):
    found = fnmatch.filter(names, pattern)
    if not found:
      raise errors.SettingsError(
        f'--{flag}={pattern} matches none of the trained variables: '
        f'{", ".join(names)}.'
      )
    chosen |= {*found}
  return chosen


def _adapt(
  model_fn: builders.ModelFn, settings: settings_lib.Settings
) -> builders.ModelFn:
  """Adds adapters to a model, with --lora_rank.

  Raises:
    SettingsError: If a pattern matches no variable, or no kernel can have
      adapters.
  """
  if settings.lora_rank is None:
    return model_fn
  names = models.variable_names(model_fn)
  options: dict[str, Any] = {}
  for option, flag in (('adapts', 'targets'), ('trains', 'also_train')):
    patterns = getattr(settings, f'lora_{flag}')
    if patterns is not None:
      chosen = _chosen(f'lora_{flag}', patterns, names)
      options[option] = chosen.__contains__
  try:
    return adapters.adapt(
      model_fn,
      settings.lora_rank,
      rule=settings.lora_rule or 'lora',
      alpha=settings.lora_alpha,
      **options,
    )
  except adapters.AdapterError as e:
    raise errors.SettingsError(f'--lora_rank={settings.lora_rank}: {e}') from e


def make(
  settings: settings_lib.Settings,
  task: tff.simulation.baselines.BaselineTask,
  built: Built,
  cohort_fn: Callable[[int], Sequence[str]],
  read: Callable[[settings_lib.Settings], data_lib.ClientDatasets],
) -> loop.Parts:
  """Builds the parts of a run; writes nothing.

  Args:
    settings: The run's settings.
    task: Its task, as returned by `experiment.create_task`.
    built: Its process, as returned by `experiment.build`.
    cohort_fn: Maps a round's number to the ids of the clients drawn.
    read: Builds the training clients on other machines.

  Raises:
    SettingsError: If the data or the initial weights cannot be used.
    RunError: If data cannot be read.
  """
  key = reuse.model_key(settings, task)
  evaluator = reuse.evaluator(key, lambda: evaluation.Evaluator(task.model_fn))
  evaluator.leave_graph_mode()
  kept = checkpoints.Checkpoints(files.RunFolder(settings.folder).checkpoints)
  # A resumed run has its own weights, and --initial_weights may be gone.
  if settings.initial_weights is None or kept.rounds:
    weights = initial_weights.draw(task.model_fn, settings.seed, key)
  else:
    place = pathlib.Path(settings.initial_weights)
    weights = initial_weights.load(task.model_fn, place)
  clients = training_data(settings, task)
  participation = _participation(settings, clients, cohort_fn, built.process)
  made: asynchronous.Clients = clients
  if settings.runtime == 'ray' and built.process is not None:
    counts = client_data.example_counts(task.datasets.train_data)
    most = settings.task_options.get('max_elements')
    if most is not None:
      counts = {name: min(count, most) for name, count in counts.items()}
    made = remote_data.RemoteClients(
      clients,
      counts,
      remote_data.Source(functools.partial(read, settings)),
      runtime.data_announcer(),
    )
  trained: data_lib.Clients = made
  if isinstance(participation, asynchronous.Schedule):
    trained = asynchronous.AsynchronousClients(made, participation)
  rounds = build_rounds(
    settings,
    task.model_fn,
    built,
    weights,
    client_ids=clients.client_ids,
    participation=participation,
  )
  groups = ['validation']
  if settings.ema_decay is not None:
    groups.append('ema')
  columns = [f'{group}/{name}' for group in groups for name in evaluator.names]
  directions = metric_names.merge_directions(
    evaluator.directions, settings.metric_direction
  )
  if settings.patience is not None and settings.target_metric is None:
    main = metric_names.main_metric(dict.fromkeys(evaluator.names))
    metric_names.require_direction(main, directions)
  goal = early_stopping.goal_of(settings.target_metric, columns, directions)
  directions[goal.column.partition('/')[2]] = goal.rises
  return loop.Parts(
    task=task,
    formula=description.describe(built.components),
    cohort_fn=cohort_fn if participation is None else participation.cohort,
    participation=participation,
    rounds=rounds,
    evaluator=evaluator,
    clients=trained,
    splits=validation.build(settings, task.datasets),
    ledger=built.ledger,
    goal=goal,
    directions=directions,
    client_tests=_client_tests(settings, task, weights, evaluator, directions),
  )


def _client_tests(
  settings: settings_lib.Settings,
  task: tff.simulation.baselines.BaselineTask,
  weights: tff.learning.models.ModelWeights,
  evaluator: evaluation.Evaluator,
  directions: Mapping[str, bool],
) -> Optional[client_tests_lib.ClientTests]:
  """Builds the per-client tests; `None` without --evaluate_clients."""
  if settings.evaluate_clients is None:
    return None
  tuner = None
  epochs = settings.finetune_epochs
  if epochs is not None:
    assert settings.finetune_learning_rate is not None
    clients = batches.training_clients(
      task.datasets,
      seed=settings.seed,
      cache_bytes=0,
      as_lists=False,
      one_pass=True,
    )
    if settings.task_options.get('epochs', 1) > 1 and not isinstance(
      clients, batches.ClientBatches
    ):
      raise errors.SettingsError(
        f'--finetune_epochs={epochs} counts passes, and the preprocessing of '
        f'--task={settings.task} makes several in one: give '
        '--client_epochs_per_round=1.'
      )

    def passes(client: str) -> Any:
      # Negative round numbers, so that shuffles differ from those of training.
      made = [clients.for_client(client, -n) for n in range(1, epochs + 1)]
      return functools.reduce(tf.data.Dataset.concatenate, made)

    tuner = client_tests_lib.build_tuner(
      task.model_fn,
      weights,
      learning_rate=settings.finetune_learning_rate,
      seed=settings.seed % 2**31,
      data=passes,
    )
  tests = client_tests_lib.ClientTests(
    datasets=task.datasets,
    evaluator=evaluator,
    directions=directions,
    count=None
    if settings.evaluate_clients == 'all'
    else int(settings.evaluate_clients),
    seed=settings.seed,
    tuner=tuner,
  )
  tests.clients()  # Raises before training if there are too few clients.
  return tests


def _participation(
  settings: settings_lib.Settings,
  clients: data_lib.ClientDatasets,
  cohort_fn: Callable[[int], Sequence[str]],
  process: Optional[processes.Process],
) -> Optional[availability_lib.Participation]:
  """Builds the participation in rounds; `None` if not simulated."""
  system_model = system_model_lib.system_model_of(settings)
  if system_model is None:
    return None
  if system_model.timed:
    # What is sent may have no fixed size; it then takes no time.
    with contextlib.suppress(ValueError):
      sizes = reuse.of_process(process, traffic.of_process)
      system_model.carry(sizes.down, sizes.up)
  more: dict[str, Any] = dict(
    wanted=settings.clients_per_round, deadline=settings.deadline
  )
  work = clients.num_batches if system_model.per_step else clients.num_examples
  if not settings.asynchronous:
    return availability_lib.Availability(cohort_fn, work, system_model, **more)
  return asynchronous.Schedule(
    clients.client_ids,
    cohort_fn,
    work,
    system_model,
    concurrency=settings.concurrency or settings.clients_per_round,
    **more,
  )


def training_data(
  settings: settings_lib.Settings, task: tff.simulation.baselines.BaselineTask
) -> data_lib.ClientDatasets:
  """Builds the training clients; pooled data for a method without clients."""
  shared: dict[str, Any] = dict(
    seed=settings.seed, cache_bytes=settings.cache_mib * 2**20
  )
  if settings.configuration.method.has_clients:
    return batches.training_clients(
      task.datasets,
      as_lists=settings.runtime != 'native',
      max_steps=settings.client_steps_per_round,
      **shared,
    )
  return centralized.PooledDatasets(
    task.datasets,
    clients_per_round=settings.clients_per_round,
    epochs=settings.task_options.get('epochs', 1),
    max_elements=settings.task_options.get('max_elements'),
    **shared,
  )


def build_rounds(
  settings: settings_lib.Settings,
  model_fn: Callable[[], tff.learning.models.VariableModel],
  built: Built,
  weights: tff.learning.models.ModelWeights,
  *,
  client_ids: Optional[Sequence[str]] = None,
  participation: Any = None,
) -> rounds_lib.Rounds:
  """Builds the rounds of a run, in their initial state.

  Args:
    settings: The run's settings.
    model_fn: Returns its task's model.
    built: The process and components built from its configuration.
    weights: The initial model weights, as arrays.
    client_ids: The task's clients. Without them the rounds can only restore a
      model.
    participation: The clients that answer; a schedule in asynchronous training.
  """
  folder = files.RunFolder(settings.folder)

  def store(path: pathlib.Path) -> rounds_lib.Store:
    if client_ids is None:
      return client_states.ClientStates
    memory_bytes = settings.client_state_mib * 2**20
    return lambda fresh: client_states.ClientStates(fresh, path, memory_bytes)

  kept: dict[str, Any] = dict(
    store=store(folder.client_states), client_ids=client_ids
  )
  rounds: rounds_lib.Rounds
  if built.process is None:
    rounds = centralized.CentralizedRounds(
      model_fn,
      optimizer=built.components.server_optimizer,
      initial_weights=weights,
      seed=built.components.configuration.values['seed'] % 2**31,
    )
  else:
    state = built.components.first_state(reuse.template(built.process), weights)
    if isinstance(built.process, processes.BufferedLearningProcess):
      assert settings.concurrency is not None
      rounds = asynchronous.AsynchronousRounds(
        built.process,
        state,
        concurrency=settings.concurrency,
        schedule=participation,
        discount=asynchronous.DISCOUNTS[settings.staleness or 'none'],
        received_store=store(folder.received),
        **kept,
      )
    else:
      rounds = rounds_lib.LearningRounds(
        built.process,
        state,
        whole_updates=not settings.configuration.aggregation.formula,
        **kept,
      )
  if settings.ema_decay is None:
    return rounds
  return rounds_lib.AveragedRounds(rounds, settings.ema_decay)
