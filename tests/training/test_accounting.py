"""Privacy through the whole program: flags, ledger, columns, resume."""

import math

import pytest

from tests import recorded
from tests import runs
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import training
from tff_adaptive.lab.commands import train as command
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training import experiment as train

pytestmark = pytest.mark.usefixtures('undrawn')

parse = runs.parse
CLIP = ('--client_optimizer=sgd', '--dp_clip_norm=0.5')


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['--dp_noise_multiplier=1'], '--dp_noise_multiplier is 1 but updates'),
    (
      ['--target_epsilon=3'],
      '--target_epsilon=3 would be ignored without --dp_clip_norm',
    ),
    ([*CLIP, '--target_epsilon=0'], '--target_epsilon must be a number above'),
    (
      [*CLIP, '--target_epsilon=3', '--dp_noise_multiplier=1'],
      'both set the noise',
    ),
    ([*CLIP, '--client_weighting=examples'], "must be 'uniform'"),
    ([*CLIP, '--dp_delta=1'], '--dp_delta must be a number above 0 and below'),
    (['--dp_delta=0.1'], '--dp_delta=0.1 would be ignored'),
    (['--dp_sampling=poisson'], '--dp_sampling=poisson would be ignored'),
    ([*CLIP, '--algorithm=mime'], 'gradients at the received weights'),
    (
      [*CLIP, '--dp_adaptive_clipping', '--dp_noise_multiplier=2'],
      'needs more than 20 clients a round, got 10',
    ),
    (['--dp_clients_per_round=3'], 'no flag --dp_clients_per_round'),
    (
      ['--algorithm=fedada2_blended', '--client_mix=adam=0.5,sgd=0.6'],
      'probabilities of --client_mix must sum to 1, got 1.1',
    ),
    (['--algorithm=fedada2_blended', '--delay_mix=0=1'], 'at least 1'),
    (['--algorithm=fedada2', '--delay=0'], '--delay must be a whole number'),
  ],
)
def test_complaints(arguments, words):
  with pytest.raises(errors.SettingsError) as error:
    parse(*arguments)
  message = str(error.value)
  assert words in message
  assert '\n' not in message and message.endswith('.')


def test_a_private_run_weighs_clients_alike():
  settings = parse(*CLIP, '--dp_noise_multiplier=1', '--clients_per_round=7')
  assert settings.configuration.private
  assert settings.hyperparameters['client_weighting'] == 'uniform'
  assert settings.hyperparameters['dp_clients_per_round'] == 7
  algorithms.check(
    settings.algorithm,
    client_optimizer=settings.client_optimizer,
    server_optimizer=settings.server_optimizer,
    **settings.hyperparameters,
  )
  assert settings.identity['dp_clip_norm'] == 0.5
  assert settings.identity['dp_sampling'] == 'fixed'


def test_a_delta_above_one_client_is_refused():
  told = [*CLIP, '--dp_noise_multiplier=1', '--clients_per_round=2']
  with pytest.raises(errors.SettingsError) as error:
    accounting.open_ledger(parse(*told, '--dp_delta=0.1'), 20)
  assert str(error.value) == (
    '--dp_delta must be at most 1 / 20 = 0.05, the share of one of the 20 '
    "clients, got 0.1: a mechanism that publishes one client's data would "
    'pass; omit it for 20^-1.1 = 0.03706.'
  )
  # A client's share itself is what papers state.
  for clients in (3, 10, 20, 49, 400):
    share = parse(*told, f'--dp_delta={1 / clients!r}')
    assert accounting.open_ledger(share, clients).budget.delta == 1 / clients
    default = accounting.open_ledger(parse(*told), clients).budget.delta
    assert default < 1 / clients


def test_the_ledger_of_the_papers_run():
  settings = parse(
    *CLIP,
    '--dp_noise_multiplier=1',
    '--clients_per_round=40',
    '--total_rounds=500',
    '--dp_delta=0.0025',
    '--dp_sampling=poisson',
    '--dp_accounting=rdp',
  )
  ledger = accounting.open_ledger(settings, 400)
  assert ledger.columns(500) == {
    'privacy/epsilon': 13.1236,
    'privacy/delta': 0.0025,
  }
  assert ledger.columns(1)['privacy/epsilon'] < 3
  assert '13.12 by RDP, order 2' in ledger.describe()


def test_a_target_decides_the_noise():
  settings = parse(*CLIP, '--target_epsilon=5', '--total_rounds=20')
  ledger = accounting.open_ledger(settings, 100)
  assert ledger.budget.delta == pytest.approx(100**-1.1)
  assert ledger.columns(20)['privacy/epsilon'] <= 5
  values = accounting.with_noise(settings.configuration, ledger).values
  assert values['dp_noise_multiplier'] == ledger.noise_multiplier > 0.5
  assert '--target_epsilon=5' in ledger.describe()


def test_clipping_alone_has_no_epsilon():
  ledger = accounting.open_ledger(parse(*CLIP), 100)
  assert ledger.columns(3) == {}
  assert 'epsilon is infinite' in ledger.describe()


def test_fewer_clients_than_a_round_takes():
  with pytest.raises(
    errors.SettingsError, match='from 1 to 5, the number of clients'
  ):
    accounting.open_ledger(parse(*CLIP, '--dp_noise_multiplier=1'), 5)


def test_runs_that_differ_have_other_noise():
  shared = [*CLIP, '--task=table', '--data=synthetic', '--clients_per_round=6']

  def seed(*more):
    settings = parse(*shared, *more)
    built = train.build(settings, train.create_task(settings))
    return built.components.configuration.values['seed']

  noise = '--dp_noise_multiplier=0.5'
  alone = seed(noise)
  # One that is extended goes on as if it was longer.
  assert alone == seed(noise, '--total_rounds=7')
  others = [
    seed(noise, '--client_learning_rate=0.2'),
    seed('--dp_noise_multiplier=0.6'),
    seed('--target_epsilon=5', '--total_rounds=7'),
    seed('--target_epsilon=5', '--total_rounds=8'),
  ]
  assert len({alone, *others}) == 5


@pytest.mark.exhaustive
def test_a_private_run_and_its_resumption(tmp_path, capsys):
  def settings(name, total):
    words = [*CLIP, '--task=table', '--data=synthetic', '--rounds_per_eval=10']
    words += ['--dp_noise_multiplier=0.5', '--dp_adaptive_clipping']
    words += ['--clients_per_round=6', '--rounds_per_checkpoint=2']
    return runs.settings_of(
      tmp_path, *words, f'--total_rounds={total}', name=name
    )

  def run(given, **more):
    said = []
    train.run(given, say=said.append, **more)
    return '\n'.join(said)

  def rows(given):
    return recorded.rows(given.folder)

  whole = settings('whole', 4)
  said = run(whole)
  assert 'privacy: after 4 rounds of 6 of' in said
  assert 'noise ~ N(0,' in said
  epsilons = [float(row['privacy/epsilon']) for row in rows(whole)[1:]]
  assert epsilons == sorted(epsilons) and 0 < epsilons[0] < epsilons[-1]
  ledger = accounting.open_ledger(whole, 100)
  assert ledger.noise_multiplier == 0.5
  clips = [
    float(row['aggregator/dp_query_metrics/clip_norm'])
    for row in rows(whole)[1:]
  ]
  assert len(set(clips)) == 4

  class Enough(errors.RunError):
    pass

  class GivesUp(hooks.Hook):
    def round(self, event):
      if event.number == 3:
        raise Enough

  broken = settings('broken', 4)
  with pytest.raises(Enough):
    run(broken, hooks=[GivesUp()])
  run(broken)
  # The noise, too, is the same.
  assert rows(broken) == rows(whole)
  text = command.summary(rows(whole), files.RunFolder(whole.folder))
  assert f'epsilon = {epsilons[-1]:.4g} at delta' in text
  capsys.readouterr()
  assert math.isfinite(epsilons[-1])


@pytest.mark.parametrize(
  'noise', [{'dp_noise_multiplier': 0.5}, {'target_epsilon': 5.0}]
)
def test_what_is_exported_needs_no_clients(noise):
  """Files may be elsewhere, and the task's synthetic clients too few."""
  settings = training.settings(
    task='digits', algorithm='fedavg', clients_per_round=40, dp_clip_norm=1.0,
    **noise,
  )  # fmt: skip
  task = train.create_task(settings)
  with pytest.raises(errors.SettingsError, match='clients_per_round'):
    train.build(settings, task)
  built = train.build(settings, task, trains=False)
  assert built.ledger is None and built.process is not None
