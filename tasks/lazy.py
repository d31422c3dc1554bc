"""Lazy imports of this package's modules that import TensorFlow.

Modules that describe tasks do not import TensorFlow; see `tff_adaptive.lazy`.
"""

from typing import TYPE_CHECKING

from tff_adaptive import lazy

if TYPE_CHECKING:
  from tasks import builders as builders
  from tasks import client_data as client_data
  from tasks import encodings as encodings
  from tasks import preprocessing as preprocessing
  from tasks.formats import columns as columns
  from tasks.formats import sqlite_files as sqlite_files
  from tasks.formats import tables as tables
  from tasks.models import distilbert as distilbert
  from tasks.models import lstm as lstm
  from tasks.models import parabola as parabola
  from tasks.models import resnet as resnet
  from tasks.models import text as text
  from tasks.models import vit as vit
else:
  for _name in (
    'tasks.builders',
    'tasks.client_data',
    'tasks.encodings',
    'tasks.preprocessing',
    'tasks.formats.columns',
    'tasks.formats.sqlite_files',
    'tasks.formats.tables',
    'tasks.models.distilbert',
    'tasks.models.lstm',
    'tasks.models.text',
    'tasks.models.parabola',
    'tasks.models.resnet',
    'tasks.models.vit',
  ):
    globals()[_name.rpartition('.')[2]] = lazy.Module(_name)
