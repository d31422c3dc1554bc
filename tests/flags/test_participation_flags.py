"""Flags of clients' time and dropouts that do not fit each other."""

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing

_TIME = '--client_seconds_per_example=1'
_EPOCHS = ['--delay_unit=epochs', '--delay=2', '--client_epochs_per_round=2']
_DP = ['--dp_clip_norm=1', '--dp_noise_multiplier=1']


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['--client_speed_spread=1'], 'without --client_seconds_per_example'),
    (['--deadline=5'], '--deadline=5 would be ignored without'),
    (['--over_selection=2'], 'or --client_dropout'),
    (['--client_seconds_per_example=0'], 'above 0'),
    ([_TIME, '--client_speed_spread=-1'], 'at least 0'),
    (['--client_dropout=1'], 'below 1'),
    ([_TIME, '--over_selection=0.9'], 'at least 1'),
    ([_TIME, '--deadline=0'], 'above 0'),
    (['--algorithm=centralized', _TIME], 'has no clients'),
    (['--algorithm=centralized', '--jit_compile=true'], 'has no clients'),
    (['--algorithm=centralized', '--client_dropout=0.1'], 'has no clients'),
    (['--asynchronous'], '--asynchronous would be ignored without'),
    (
      ['--asynchronous', '--client_dropout=0.1'],
      'per_step or --client_devices',
    ),
    ([_TIME, '--concurrency=5'], 'would be ignored without --asynchronous'),
    ([_TIME, '--staleness=none'], 'would be ignored without --asynchronous'),
    (
      [_TIME, '--asynchronous', '--over_selection=2'],
      '--over_selection=2 would be ignored',
    ),
    (
      [_TIME, '--asynchronous', *_DP],
      '--asynchronous cannot be combined with differential',
    ),
    (
      [_TIME, '--asynchronous', '--algorithm=scaffold'],
      '--asynchronous cannot be combined with --algorithm=scaffold',
    ),
    (
      ['--algorithm=centralized', '--asynchronous'],
      '--asynchronous would be ignored',
    ),
    (
      [_TIME, '--deadline=5', *_DP],
      '--deadline cannot be combined with differential',
    ),
    (
      [_TIME, '--over_selection=2', *_DP],
      '--over_selection cannot be combined with differential',
    ),
    (
      ['--algorithm=centralized', '--max_rejected_clients=1'],
      '--max_rejected_clients=1 would be ignored',
    ),
    (
      ['--algorithm=fedsam', '--client_optimizer=adam', *_EPOCHS],
      '--delay_unit=epochs would be ignored',
    ),
    (
      ['--algorithm=fedada2', *_EPOCHS, '--client_steps_per_round=4'],
      'cut short',
    ),
    (
      [
        '--dp_adaptive_clipping',
        '--dp_noise_multiplier=1',
        '--dp_clip_quantile=0.9',
        '--client_dropout=0.1',
        '--clients_per_round=50',
      ],
      'count as half above',
    ),
    (['--algorithm=fedef21', '--aggregator=robust'], 'leave --aggregator out'),
    (
      ['--algorithm=fedcams', '--aggregator_clipping'],
      'leave --aggregator_clipping out',
    ),
  ],
)
def test_complaints(arguments, words):
  with pytest.raises(errors.SettingsError) as raised:
    parsing.Flags().parse(arguments)
  assert words in str(raised.value)


@pytest.mark.parametrize(
  'arguments',
  [
    [_TIME, '--client_speed_spread=0.5', '--deadline=5'],
    ['--client_dropout=0.1', '--over_selection=1.2'],
    [_TIME, '--client_dropout=0.1', *_DP],
    [_TIME, '--asynchronous', '--concurrency=12', '--staleness=none'],
  ],
)
def test_what_goes_together(arguments):
  plain, settings = (
    parsing.Flags().parse(given).settings for given in ([], arguments)
  )
  added = settings.identity.keys() - plain.identity.keys()
  assert {a.strip('-').partition('=')[0] for a in arguments} <= added


def test_what_an_asynchronous_run_has_unless_told():
  short, long = (
    parsing.Flags().parse([_TIME, '--asynchronous', *more]).settings
    for more in ([], ['--concurrency=10', '--staleness=polynomial'])
  )
  assert short.identity == long.identity
  assert short.concurrency == short.clients_per_round == 10
  plain = parsing.Flags().parse(['--noasynchronous']).settings
  assert plain.identity == parsing.Flags().parse([]).settings.identity


def test_cohorts_of_private_runs_follow_from_the_seed():
  """Their epsilon counts on cohorts that nobody knows."""

  def of(*arguments):
    settings = parsing.Flags().parse(arguments).settings
    return settings.client_datasets_random_seed

  assert of('--seed=5') == 1
  assert of('--seed=5', *_DP) == 5
  assert of(f'--seed={2**40 + 7}', *_DP) == 7
  assert of('--seed=5', '--client_datasets_random_seed=3', *_DP) == 3
