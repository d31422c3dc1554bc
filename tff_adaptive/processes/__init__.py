"""The parts of a round: local models, objectives, client work, composition."""

from tff_adaptive.processes.aggregation import build_aggregator
from tff_adaptive.processes.client_work import build_client_work
from tff_adaptive.processes.composition import BufferedLearningProcess
from tff_adaptive.processes.composition import compose
from tff_adaptive.processes.composition import needs_one_version
from tff_adaptive.processes.composition import Process
from tff_adaptive.processes.composition import StatefulLearningProcess
from tff_adaptive.processes.composition import StatefulOutput
from tff_adaptive.processes.exchange import Exchange
from tff_adaptive.processes.exchange import NoExchange
from tff_adaptive.processes.objectives import Contrastive
from tff_adaptive.processes.objectives import Correction
from tff_adaptive.processes.objectives import Objective
from tff_adaptive.processes.objectives import Plain
from tff_adaptive.processes.objectives import Proximal
from tff_adaptive.processes.objectives import Sum

__all__ = [
  'BufferedLearningProcess',
  'Contrastive',
  'Correction',
  'Exchange',
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
  'needs_one_version',
]
