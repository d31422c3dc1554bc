"""Names as papers print them: of methods, optimizers and measures."""

from collections.abc import Collection
from typing import Optional

from tff_adaptive.recording import metric_names

_METHODS = {
  'bi2clip': 'Bi2Clip',
  'centralized': 'Centralized',
  'delta_sgd': '\N{GREEK CAPITAL LETTER DELTA}-SGD',
  'diloco': 'DiLoCo',
  'direct_joint': 'Direct joint',
  'fadamgc': 'FAdamGC',
  'fedada2': 'FedAda\N{SUPERSCRIPT TWO}',
  'fedada2_blended': 'FedAda\N{SUPERSCRIPT TWO} blended',
  'fedadagrad': 'FedAdagrad',
  'fedadam': 'FedAdam',
  'fedadamw': 'FedAdamW',
  'fedams': 'FedAMS',
  'fedavg': 'FedAvg',
  'fedavgm': 'FedAvgM',
  'fedcams': 'FedCAMS',
  'fedcm': 'FedCM',
  'feddecsps': 'FedDecSPS',
  'feddyn': 'FedDyn',
  'fedef21': 'FedEF21',
  'fedexp': 'FedExP',
  'fedhyper': 'FedHyper',
  'fedlesam': 'FedLESAM',
  'fedlion': 'FedLion',
  'fedmuon': 'FedMuon',
  'fednova': 'FedNova',
  'fedprox': 'FedProx',
  'fedsam': 'FedSAM',
  'fedsps': 'FedSPS',
  'fedsps_global': 'FedSPS-Global',
  'fedsps_normalized': 'FedSPS-Normalized',
  'fedyogi': 'FedYogi',
  'joint_zero_init': 'Joint zero init',
  'local_adaalter': 'Local AdaAlter',
  'local_amsgrad': 'Local AMSGrad',
  'mime': 'Mime',
  'mimelite': 'MimeLite',
  'moon': 'MOON',
  'muloco': 'MuLoCo',
  'scaffold': 'SCAFFOLD',
}
_OPTIMIZERS = {
  'adaalter': 'AdaAlter',
  'adagrad': 'Adagrad',
  'adam': 'Adam',
  'adamw': 'AdamW',
  'ams': 'AMSGrad',
  'biclip': 'BiClip',
  'delta_sgd': '\N{GREEK CAPITAL LETTER DELTA}-SGD',
  'dog': 'DoG',
  'lion': 'Lion',
  'muon': 'Muon',
  'polyak': 'SPS',
  'prodigy': 'Prodigy',
  'schedule_free_sgd': 'schedule-free SGD',
  'sgd': 'SGD',
  'sm3_adagrad': 'SM3-Adagrad',
  'sm3_adam': 'SM3-Adam',
  'yogi': 'Yogi',
}


def method(name: str) -> str:
  """Returns the printed name of a method, such as 'FedAdam + \u0394-SGD'.

  Args:
    name: As `report.runs.method_of` names it; a name that nobody here knows
      stays as it is.
  """
  rest, _, server = name.partition(' / ')
  base, _, client = rest.partition(' + ')
  text = _METHODS.get(base, base)
  if client:
    text += f' + {_OPTIMIZERS.get(client, client)}'
  if server:
    text += f' / {_OPTIMIZERS.get(server, server)}'
  return text


def methods(names: Collection[str]) -> dict[str, str]:
  """Returns printed names of methods, of which no two are the same."""
  printed = {name: method(name) for name in names}
  taken = list(printed.values())
  return {n: p if taken.count(p) == 1 else n for n, p in printed.items()}


def heading(words: str, metric: Optional[str]) -> str:
  """Writes words as a heading: 'Test accuracy (%)'.

  Args:
    words: Such as 'test accuracy'.
    metric: The metric that they are about, if it is one.
  """
  text = words[:1].upper() + words[1:]
  share = metric is not None and metric_names.is_share(metric)
  return f'{text} (%)' if share else text
