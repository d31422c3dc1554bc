"""The recorded targets, their runs and what the page on the board says."""

import json
import re

import pytest

from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import standings as standings_lib
from tff_adaptive.lab.board import workloads
from tools import board_tables

_FOLDER = board_tables.FOLDER


def _baselines():
  return [
    entries.read(_FOLDER / 'baselines' / f'{name}.json')
    for name in spaces.BASELINES
  ]


def _page():
  return board_tables.PAGE.read_text(encoding='utf-8')


def test_targets_are_those_of_the_runs_beside_them(tmp_path):
  recorded = _FOLDER / references.FILE
  assert {*workloads.QUICK} <= {*references.read(recorded).quality}
  references.make(_baselines(), tmp_path / 'again.json')
  assert (tmp_path / 'again.json').read_bytes() == recorded.read_bytes()


def test_the_page_has_the_recorded_losses():
  found = json.loads((_FOLDER / references.FILE).read_text(encoding='utf-8'))
  told = _page()
  rows = re.findall(r'^\| `(\w+)` \|((?: [\d.]+ \|){5})$', told, re.MULTILINE)
  assert {name for name, _ in rows} == found['workloads'].keys()
  for name, cells in rows:
    of = found['workloads'][name]
    losses = [of['untrained'], *(of['medians'][m] for m in spaces.BASELINES)]
    assert cells.replace('|', '').split() == [f'{x:#.3g}' for x in losses]
  runs = sum(len(r) for e in _baselines() for r in e.records.values())
  assert (
    re.search(r'([\d,]+) runs of\s+four\s+baselines', told)[1] == f'{runs:,}'
  )


def test_the_page_says_which_baseline_ends_lowest():
  found = references.read(_FOLDER / references.FILE).quality
  ranked = {
    workload.name: sorted(medians, key=medians.get)
    for workload in workloads.CORE
    for medians in [found[workload.name]['medians']]
  }
  assert {
    best: {name for name, order in ranked.items() if order[0] == best}
    for best in ('fedavgm', 'scaffold')
  } == {
    'fedavgm': {'digits_autoencoder'},
    'scaffold': {'synthetic', 'hospitals', 'synthetic_once'},
  }
  assert [order[0] for order in ranked.values()].count('fedadam') == 6
  assert all(
    order[-1] == 'scaffold' or order[0] == 'scaffold'
    for order in ranked.values()
  )


@pytest.mark.parametrize('group', board_tables.GROUPS)
def test_places_are_those_of_the_recorded_entries(group):
  csv, markdown = board_tables.tables_of(board_tables.standings_of(group))
  file = _FOLDER / board_tables.FILES[group][0]
  assert csv == file.read_text(encoding='utf-8')
  assert f'<!-- board {group} -->\n\n{markdown}\n\n<!-- end -->' in _page()


def test_the_page_reads_the_scores_right():
  standings = board_tables.standings_of('core')
  told = ' '.join(_page().split())

  def score(method, budget):
    return f'{standings.by_budget[budget][method].total:.3f}'

  def on(method, workload):
    return f'{standings.by_budget[4][method].by_workload[workload]:.2f}'

  def by_bytes(method):
    return f'{standings.by_measure["bytes"][method].total:.3f}'

  untuned = board_tables.untuned_of(standings)
  for words in (
    f'two to eight trials, with {score("fedadamw", 4)} at four, misses',
    f'Local AMSGrad, with {score("local_amsgrad", 4)} at four, is first with '
    f'16: {score("local_amsgrad", 16)}, where Local AdaAlter scores '
    f'{score("local_adaalter", 16)}, FedAdamW {score("fedadamw", 16)} and '
    f'FedAvg {score("fedavg", 16)}',
    f'scores {score("fadamgc", 4)}, and is by far the best on '
    f'`synthetic_once`, {on("fadamgc", "synthetic_once")}, where FedDyn scores '
    f'{on("feddyn", "synthetic_once")} and FedAvg '
    f'{on("fedavg", "synthetic_once")}',
    f'FedSAM scores {score("fedsam", 4)}:',
    f'with {score("fedlesam", 4)} as good as FedAvg',
    f'FedMuon, {score("fedmuon", 4)}, DiLoCo, {score("diloco", 4)}, and '
    f'MuLoCo, {score("muloco", 4)}, score '
    f'{on("fedmuon", "digits_autoencoder")}, '
    f'{on("diloco", "digits_autoencoder")} and '
    f'{on("muloco", "digits_autoencoder")} on the autoencoder, where FedAvg '
    f'scores {on("fedavg", "digits_autoencoder")}, but '
    f'{on("fedmuon", "hospitals")} on `hospitals` (FedMuon) and '
    f'{on("diloco", "synthetic_once")} on `synthetic_once`',
    f'on `digits_rotated`, {on("local_amsgrad", "digits_rotated")} against '
    f'{on("fedavg", "digits_rotated")}, and furthest behind on '
    '`quadratics_heavy`, where noise has infinite variance, '
    f'{on("local_amsgrad", "quadratics_heavy")} against '
    f'{on("fedavg", "quadratics_heavy")}',
    f'With one trial FedSPS scores {score("fedsps", 1)}, Local AMSGrad '
    f'{score("local_amsgrad", 1)} and FedAvg {score("fedavg", 1)}; with 16 '
    f'FedSPS scores {score("fedsps", 16)}',
    f'joint adaptivity from zero scores {score("joint_zero_init", 16)}, direct '
    "joint adaptivity, which sends clients the server's moments, "
    f'{score("direct_joint", 16)}, FedAdagrad {score("fedadagrad", 16)} and '
    f'FedAdam {score("fedadam", 16)}',
    f'the compressed moments of FedAda², {score("fedada2", 16)}',
    f'with four trials {on("joint_zero_init", "quadratics_heavy")} and '
    f'{on("direct_joint", "quadratics_heavy")} on `quadratics_heavy`, where '
    f'FedAdagrad scores {on("fedadagrad", "quadratics_heavy")} and FedAvg '
    f'{on("fedavg", "quadratics_heavy")}',
    f'with one trial they score {score("fedada2_blended", 1)}, FedAda² '
    f'{score("fedada2", 1)}, but with 16 {score("fedada2_blended", 16)}',
    f'With four trials it scores {on("fedsps", "quadratics_heavy")} on '
    f'`quadratics_heavy`, {on("fedsps", "hospitals")} on `hospitals` and '
    f'{on("fedsps", "markov_text")} on `markov_text`, where FedAvg scores '
    f'{on("fedavg", "quadratics_heavy")}, {on("fedavg", "hospitals")} and '
    f'{on("fedavg", "markov_text")}, but {on("fedsps", "digits_rotated")} on '
    f'`digits_rotated` and `synthetic_once`, where FedAvg scores '
    f'{on("fedavg", "digits_rotated")} and {on("fedavg", "synthetic_once")}',
    f'FedSPS-Global scores {on("fedsps_global", "digits_rotated")} on '
    '`digits_rotated`',
    f"one trial ({score('fedavg', 1)} against FedAdam's {score('fedadam', 1)}) "
    f'to 16 ({score("fedavg", 16)} against {score("fedadam", 16)})',
    f'{score("fedprox", 4)} against {score("fedavg", 4)} with four trials and '
    f'{score("fedprox", 16)} against {score("fedavg", 16)} with 16',
    f'FedAdagrad scores {on("fedadagrad", "zipf_tags")} on `zipf_tags` and '
    f'{on("fedadagrad", "synthetic")} on `synthetic`, where FedAvg scores '
    f'{on("fedavg", "zipf_tags")} and {on("fedavg", "synthetic")}; on `digits` '
    f'it scores {on("fedadagrad", "digits")} against {on("fedavg", "digits")}',
    f'{score("delta_sgd", 1)} with one trial, {score("delta_sgd", 16)} with 16',
    f'Its defaults ({untuned["Δ-SGD"]})',
    f'best defaults:** they score {untuned["FedDyn"]}, {untuned["FedExP"]} and '
    f'{untuned["FedSPS-Global"]}, with nothing tuned',
    f'FedDyn is ahead of FedAvg at every budget, {score("feddyn", 4)} against '
    f'{score("fedavg", 4)} with four trials and {score("feddyn", 16)} against '
    f'{score("fedavg", 16)} with 16',
    f"clients' models differ, with {on('feddyn', 'synthetic')}, and behind "
    f'FedAvg under heavy tails ({on("feddyn", "quadratics_heavy")} against '
    f'{on("fedavg", "quadratics_heavy")}) and on sparse words '
    f'({on("feddyn", "zipf_tags")} against {on("fedavg", "zipf_tags")})',
    f'best on `digits`, {on("fedcm", "digits")}, whose',
    f'and scores {score("fednova", 16)} with 16',
    f'FedEF21 and FedCAMS score {score("fedef21", 4)} and '
    f'{score("fedcams", 4)}, FedAvg and FedAMS, which they compress, '
    f'{score("fedavg", 4)} and {score("fedams", 4)}; and when bytes alone are '
    f'counted {by_bytes("fedef21")} and {by_bytes("fedcams")} against '
    f'{by_bytes("fedavg")} and {by_bytes("fedams")}',
    f'at every budget, {score("fedexp", 4)} against {score("fedavg", 4)} with '
    f'four trials and {score("fedexp", 16)} against {score("fedavg", 16)} with '
    '16',
    f'is behind it at every budget: {score("fedhyper", 4)} and '
    f'{score("fedhyper", 16)}',
    f'scores {score("mimelite", 4)} with four trials, Mime {score("mime", 4)}',
    f'{untuned["SCAFFOLD"]} against {score("scaffold", 16)}',
    f'{untuned["Bi2Clip"]} against {score("bi2clip", 16)}',
    f'FedLion scores {on("fedlion", "digits")} on `digits` and '
    f'{on("fedlion", "digits_rotated")} on `digits_rotated`, where FedAvg '
    f'scores {on("fedavg", "digits")} and {on("fedavg", "digits_rotated")}, '
    f'but {score("fedlion", 4)} in all',
    f'{on("fedlion", "hospitals")} on `hospitals` against '
    f'{on("fedavg", "hospitals")}',
    f'FedPer, {score("fedper", 4)}, cannot train',
  ):
    assert words in told
  assert on('fedsps', 'synthetic_once') == on('fedsps', 'digits_rotated')
  assert on('muloco', 'synthetic_once') == on('diloco', 'synthetic_once')
  for budget, scores in standings.by_budget.items():
    best = max(scores, key=lambda method: scores[method].total)
    assert best == {1: 'fedsps', 16: 'local_amsgrad'}.get(budget, 'fedadamw')
    assert scores['fedprox'].total < scores['fedavg'].total
    assert scores['fedavg'].total < scores['fedexp'].total
    assert scores['fedavg'].total < scores['feddyn'].total
    if budget <= 8:
      assert abs(scores['fednova'].total - scores['fedavg'].total) < 0.01
    assert scores['fedhyper'].total < scores['fedavg'].total
    joint = scores['direct_joint'].total
    zero = scores['joint_zero_init'].total
    compressed = scores['fedada2'].total
    assert abs(compressed - zero) < zero - joint
    assert max(compressed, zero) < scores['local_amsgrad'].total
    for server in ('fedadagrad', 'fedadam', 'fedyogi', 'fedams'):
      assert scores[server].total < min(joint, scores['fedavg'].total)
  of = standings.by_budget[4]
  plain = of['fedavg'].by_workload
  assert {
    name
    for name, score in of['fedprox'].by_workload.items()
    if score > plain[name]
  } == {'digits', 'hospitals', 'quadratics_heavy'}
  moon = of['moon'].by_workload
  one_layer = {
    'quadratics',
    'quadratics_heavy',
    'synthetic',
    'synthetic_once',
    'zipf_tags',
  }
  assert {*standings.entries['moon'].reasons} == one_layer
  assert {*standings.entries['fedper'].reasons} == one_layer
  assert all(moon[name] < plain[name] for name in moon)
  assert f'MOON, {of["moon"].total:.3f}' in told
  ahead = {
    name: score - plain[name]
    for name, score in of['local_amsgrad'].by_workload.items()
  }
  assert max(ahead, key=ahead.__getitem__) == 'digits_rotated'
  assert min(ahead, key=ahead.__getitem__) == 'quadratics_heavy'
  assert sorted(untuned, key=untuned.__getitem__)[-3:] == [
    'FedSPS-Global',
    'FedExP',
    'FedDyn',
  ]
  for workload, best in (
    ('synthetic', 'feddyn'),
    ('synthetic_once', 'fadamgc'),
    ('digits', 'fedcm'),
  ):
    assert max(of, key=lambda name: of[name].by_workload[workload]) == best


def test_the_page_says_which_diverge_least_and_miss_least():
  rows = standings_lib.main_table(board_tables.standings_of('core')).rows
  misses = {row[1]: float(row[6].split()[0]) for row in rows}
  assert min(misses, key=misses.__getitem__) == 'FedAdamW'
  assert sorted(misses, key=misses.__getitem__).index('Δ-SGD') == 5
  diverged = {row[1]: int(row[7].split()[0]) for row in rows}
  assert sorted(diverged, key=diverged.__getitem__)[:4] == [
    'MuLoCo',
    'DiLoCo',
    'FedAdamW',
    'FedDecSPS',
  ]
  assert max(diverged, key=diverged.__getitem__) == 'Mime'
  assert (
    f'MuLoCo in {diverged["MuLoCo"]} of 1,010 runs, DiLoCo in '
    f'{diverged["DiLoCo"]}, FedAdamW in {diverged["FedAdamW"]}, and FedDecSPS, '
    f'whose steps are bounded, in {diverged["FedDecSPS"]}; FedAvg in '
    f'{diverged["FedAvg"]}' in ' '.join(_page().split())
  )
  assert (
    f'in {diverged["FedAda² blended"]} runs, where FedAda² does in '
    f'{diverged["FedAda²"]}' in _page()
  )
  speed = {row[1]: float(row[5]) for row in rows}
  assert 1 / 6.5 < speed['Mime'] < 1 / 5.5
  width = {row[1]: float(row[4]) - float(row[3]) for row in rows}
  assert {*sorted(width, key=width.__getitem__)[-4:]} == {
    'FedSPS',
    'FedDecSPS',
    'FedSPS-Normalized',
    'FedSPS-Global',
  }


def test_the_page_reads_the_federated_workloads_right():
  standings = board_tables.standings_of('federated')
  core = board_tables.standings_of('core')
  told = ' '.join(_page().split())
  adagrad = ('fedadagrad', 'fedada2', 'joint_zero_init', 'direct_joint')
  moments = ('fedadam', 'fedyogi')

  def score(method, budget):
    return f'{standings.by_budget[budget][method].total:.3f}'

  def on(workload, budget=4):
    of = standings.by_budget[budget]
    return {name: f'{of[name].by_workload[workload]:.2f}' for name in of}

  def best_trial(method, workload):
    """The place of the trial with the least loss, and that loss."""
    entry = standings.entries[method]
    losses = [
      entry.records[workload][
        runner.name_of(workload, trial, entry.protocol.tuning_seed)
      ].final
      for trial in range(entry.protocol.trials)
    ]
    return losses.index(min(losses)), min(losses)

  def rate(workload):
    """The client rate of FedAvg's best trial."""
    entry = standings.entries['fedavg']
    rounds = next(w.rounds for w in workloads.FEDERATED if w.name == workload)
    trials = entry.contestant.space.trials(
      workload, rounds, entry.protocol.trials
    )
    best, _ = best_trial('fedavg', workload)
    return float(trials[best]['client_learning_rate'])

  tags, more_tags = on('tags'), on('tags', 16)
  mnist, more_mnist = on('mnist'), on('mnist', 16)
  emnist, more_emnist = on('emnist'), on('emnist', 16)
  roles, more_roles = on('shakespeare'), on('shakespeare', 16)
  untuned = {
    workload: {n: s.by_workload[workload] for n, s in standings.untuned.items()}
    for workload in ('tags', 'emnist', 'shakespeare')
  }
  chosen, least = best_trial('fedavg', 'shakespeare')
  repeats = standings.entries['fedavg'].repeats('shakespeare', chosen)
  fresh = [record.final for record in repeats]
  agreement = standings_lib.agreement(
    board_tables.standings_of('core', 'federated')
  )
  low, high = (f'{bound:.2f}' for bound in agreement.interval)
  both_sides = adagrad[1:]
  of_defaults = ('fedmuon', 'fedavgm', 'fedavg')
  for words in (
    f'with four trials of tuning; {len(standings.entries)} methods are entered',
    f'FedSPS with one and two trials, {score("fedsps", 1)} and '
    f'{score("fedsps", 2)}, of FedMuon with four, {score("fedmuon", 4)}, of '
    f'FAdamGC with eight, {score("fadamgc", 8)}, and of FedAda² with 16, '
    f'{score("fedada2", 16)}.',
    f'FedAdagrad scores {tags["fedadagrad"]}, FedAda² {tags["fedada2"]}, joint '
    f'adaptivity from zero {tags["joint_zero_init"]} and direct joint '
    f'adaptivity {tags["direct_joint"]} with four trials, where FedAvg scores '
    f'{tags["fedavg"]}',
    'with 16, {}, {}, {} and {} against {}'.format(
      *(more_tags[name] for name in (*adagrad, 'fedavg'))
    ),
    'which forget, score {} and {}, and {} and {} with 16'.format(
      *(scores[name] for scores in (tags, more_tags) for name in moments)
    ),
    f'FedAdamW scores {emnist["fedadamw"]}, Local AMSGrad '
    f'{emnist["local_amsgrad"]} and FedMuon {emnist["fedmuon"]} with four '
    f'trials, the three methods that adapt on both sides '
    f'{min(emnist[name] for name in both_sides)} to '
    f'{max(emnist[name] for name in both_sides)}, FedYogi and FedAdam '
    f'{emnist["fedyogi"]} and {emnist["fedadam"]}, and FedAvg '
    f'{emnist["fedavg"]}',
    'score {}, {} and {} on `emnist`, which no other method reaches'.format(
      *(more_emnist[name] for name in both_sides)
    ),
    'and {}, {} and {} on `shakespeare`, where FedAdagrad scores {}.'.format(
      *(more_roles[name] for name in (*both_sides, 'fedadagrad'))
    ),
    f'FedMuon scores {roles["fedmuon"]} with four trials, DiLoCo '
    f'{roles["diloco"]}, FedSPS {roles["fedsps"]}, Local AMSGrad '
    f'{roles["local_amsgrad"]} and FedAvg {roles["fedavg"]}; with 16 FAdamGC '
    f'scores {more_roles["fadamgc"]}, FedMuon {more_roles["fedmuon"]}, DiLoCo '
    f'{more_roles["diloco"]} and Local AMSGrad {more_roles["local_amsgrad"]}.',
    f'ends at a loss of {best_trial("fedmuon", "shakespeare")[1]:.2f}, the '
    f"best of FedAvg's 16 at {least:.2f}. That one has a rate at the edge of "
    f'divergence, {rate("shakespeare"):.2g}: on the five fresh seeds its loss '
    f'rises first, ends between {min(fresh):.2f} and {max(fresh):.2f}',
    f'FedAvg scores {more_roles["fedavg"]} with 16 trials',
    f'Local AMSGrad scores {mnist["local_amsgrad"]} on `mnist`, FedDyn, which '
    f'corrects drift, {mnist["feddyn"]} and FedAvg {mnist["fedavg"]}',
    f'score {max(mnist[name] for name in both_sides)} at most. With 16 they '
    f'score {max(more_mnist[name] for name in both_sides)} at most, where '
    f'Local AMSGrad scores {more_mnist["local_amsgrad"]} and FedAvg '
    f'{more_mnist["fedavg"]}',
    f'With one trial FedSPS scores {score("fedsps", 1)}, Local AMSGrad '
    f'{score("local_amsgrad", 1)}, FedMuon {score("fedmuon", 1)} and FedAvg '
    f'{score("fedavg", 1)}; with 16 FedSPS scores {score("fedsps", 16)}.',
    f'as FedMuon is, both with {on("shakespeare", 1)["fedsps"]}.',
    f'FedSPS-Normalized scores {mnist["fedsps_normalized"]} and '
    f'{tags["fedsps_normalized"]} with four trials, FedSPS {mnist["fedsps"]} '
    f'and {tags["fedsps"]} and FedAvg {mnist["fedavg"]} and {tags["fedavg"]}, '
    f'but on `emnist`, a convolutional network, {emnist["fedsps_normalized"]}, '
    f'{emnist["fedsps"]} and {emnist["fedavg"]}, and FedSPS-Global '
    f'{emnist["fedsps_global"]}.',
    'On `shakespeare` those of FedMuon score {:.2f}, those of joint '
    'adaptivity from zero {:.2f} and those of FedAvg {:.2f}.'.format(
      *(
        untuned['shakespeare'][name]
        for name in ('fedmuon', 'joint_zero_init', 'fedavg')
      )
    ),
    f'scores {tags["fedmuon"]} on `tags` with any budget. There its best '
    f'trial ends at a loss of {best_trial("fedmuon", "tags")[1]:.2f}, that of '
    f'FedAvg at {best_trial("fedavg", "tags")[1]:.2f}; on fresh seeds',
    'those of FedMuon score {:.2f}, those of FedAvgM {:.2f} and those of '
    'FedAvg {:.2f}: more'.format(
      *(untuned['emnist'][name] for name in of_defaults)
    ),
    'than 16 trials do, {}, {} and {}, which'.format(
      *(more_emnist[name] for name in of_defaults)
    ),
    f'a rate of {rate("tags"):.2g} on `tags`, one of {rate("mnist"):.2g} on '
    f'`mnist` and one of {rate("emnist"):.2g} on `emnist`',
    f'ahead of FedAvg at every budget, {score("fedprox", 4)} against '
    f'{score("fedavg", 4)} with four trials and {score("fedprox", 16)} against '
    f'{score("fedavg", 16)} with 16, most of it on `shakespeare`, '
    f'{more_roles["fedprox"]} against {more_roles["fedavg"]}; on the core',
    f'best defaults,** {standings.untuned["fedmuon"].total:.3f} with nothing '
    f'tuned; FedAvgM is next with {standings.untuned["fedavgm"].total:.3f}.',
    f'it scores {mnist["fedadamw"]} on `mnist`, {roles["fedadamw"]} on '
    f'`shakespeare` and {tags["fedadamw"]} on `tags`, and '
    f'{score("fedadamw", 4)} in all',
    f'is last here too,** with {score("mime", 4)}, for its gradients as on the '
    f'core; MimeLite scores {score("mimelite", 4)}',
    f'is {agreement.correlation:.2f} (95 % interval {low} to {high}) over the '
    f'{agreement.methods} methods',
  ):
    assert words in told
  first = {
    budget: max(of, key=lambda name, of=of: of[name].total)
    for budget, of in standings.by_budget.items()
  }
  assert first == {
    1: 'fedsps',
    2: 'fedsps',
    4: 'fedmuon',
    8: 'fadamgc',
    16: 'fedada2',
  }
  assert standings.by_budget[16]['fedmuon'].by_workload['tags'] == 0
  assert all(max(record.losses) > record.untrained for record in repeats)
  whole = {name: of.total for name, of in standings.untuned.items()}
  assert sorted(whole, key=whole.__getitem__)[-2:] == ['fedavgm', 'fedmuon']
  on_roles = untuned['shakespeare']
  assert max(on_roles, key=on_roles.__getitem__) == 'fedmuon'
  early = on('shakespeare', 1)
  assert early['fedmuon'] == early['fedsps'] == max(early.values())
  for budget, of in standings.by_budget.items():
    assert on('tags', budget)['fedmuon'] == '0.00'
    assert of['fedavg'].total < of['fedsps'].total
    assert of['fedavg'].total < of['fedprox'].total
    behind = core.by_budget[budget]
    assert behind['fedprox'].total < behind['fedavg'].total
  assert {*sorted(roles, key=roles.__getitem__)[-4:]} == {
    'fedmuon',
    'diloco',
    'fedsps',
    'local_amsgrad',
  }
  assert {*sorted(more_roles, key=more_roles.__getitem__)[-4:]} == {
    'fadamgc',
    'fedmuon',
    'diloco',
    'local_amsgrad',
  }
  direct, zero = more_roles['direct_joint'], more_roles['joint_zero_init']
  assert direct < zero < more_roles['fedada2']
  assert {*sorted(tags, key=tags.__getitem__)[-4:]} == {*adagrad}
  assert {*sorted(emnist, key=emnist.__getitem__)[-3:]} == {
    'fedadamw',
    'local_amsgrad',
    'fedmuon',
  }
  assert max(mnist, key=mnist.__getitem__) == 'local_amsgrad'
  assert max(emnist, key=emnist.__getitem__) == 'fedadamw'
  best_three = sorted(more_emnist, key=more_emnist.__getitem__)[-3:]
  assert {*best_three} == {*both_sides}
  assert max(untuned['emnist'], key=untuned['emnist'].__getitem__) == 'fedmuon'
  of_core = standings_lib.main_table(core).rows
  rows = standings_lib.main_table(standings).rows
  assert [row[0] for row in rows].count('1') == len(rows) == 27
  assert {row[1] for row in of_core[:10]} < {row[1] for row in rows}
  assert of_core[0][1] == 'FedAdamW'
  assert of_core[-1][1] == rows[-1][1] == 'Mime'
  best = max(untuned['tags'], key=untuned['tags'].__getitem__)
  assert best.startswith('fedsps')
  assert (
    f'no defaults score more than {untuned["tags"][best]:.2f}, which those of '
    'FedSPS do' in told
  )
  diverged = [row[7].split(' of ') for row in rows if 'SPS' in row[1]]
  of_forms, all_runs = (sum(map(int, of)) for of in zip(*diverged, strict=True))
  assert len(diverged) == 4
  assert f'diverge in {of_forms} runs of {all_runs:,}.' in told
