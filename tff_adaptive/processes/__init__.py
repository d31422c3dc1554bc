"""Building blocks of a round: objectives, client work, exchange, composition.

Exchanges and objectives, the blocks of a method's description, import no
TensorFlow; modules that build computations are imported on first use.
"""

import importlib
from typing import Any, TYPE_CHECKING

from tff_adaptive.processes.exchange import Exchange
from tff_adaptive.processes.exchange import NoExchange
from tff_adaptive.processes.objectives import Contrastive
from tff_adaptive.processes.objectives import Correction
from tff_adaptive.processes.objectives import Objective
from tff_adaptive.processes.objectives import Plain
from tff_adaptive.processes.objectives import Proximal
from tff_adaptive.processes.objectives import Sum

if TYPE_CHECKING:
  from tff_adaptive.processes.aggregation import build_aggregator
  from tff_adaptive.processes.aggregation import first_aggregator_state
  from tff_adaptive.processes.composition import BufferedLearningProcess
  from tff_adaptive.processes.composition import compose
  from tff_adaptive.processes.composition import first_state
  from tff_adaptive.processes.composition import needs_one_version
  from tff_adaptive.processes.composition import Process
  from tff_adaptive.processes.composition import StatefulLearningProcess
  from tff_adaptive.processes.composition import StatefulOutput
  from tff_adaptive.processes.drift import MeasuringDrift
  from tff_adaptive.processes.local.client_work import build_client_work

__all__ = [
  'BufferedLearningProcess',
  'Contrastive',
  'Correction',
  'Exchange',
  'MeasuringDrift',
  'NoExchange',
  'Objective',
  'Plain',
  'Process',
  'Proximal',
  'StatefulLearningProcess',
  'StatefulOutput',
  'Sum',
  'build_aggregator',
  'build_client_work',
  'compose',
  'first_aggregator_state',
  'first_state',
  'needs_one_version',
]

_MODULES = {
  'MeasuringDrift': 'drift',
  'build_aggregator': 'aggregation',
  'build_client_work': 'local.client_work',
  'first_aggregator_state': 'aggregation',
}


def __getattr__(name: str) -> Any:
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module = _MODULES.get(name, 'composition')
  return getattr(importlib.import_module(f'{__name__}.{module}'), name)
