"""Lazy imports of this package's modules that import TensorFlow.

Modules that describe tasks do not import TensorFlow; see `tff_adaptive.lazy`.
"""

from typing import TYPE_CHECKING

from tff_adaptive import lazy

if TYPE_CHECKING:
  from tasks import assembly as assembly
  from tasks import class_names as class_names
  from tasks import client_data as client_data
  from tasks import encodings as encodings
  from tasks import fine_tuning as fine_tuning
  from tasks import preprocessing as preprocessing
  from tasks.formats import columns as columns
  from tasks.formats import jpeg as jpeg
  from tasks.formats import sqlite_files as sqlite_files
  from tasks.formats import tables as tables
  from tasks.formats import vocabulary as vocabulary
  from tasks.models import bag_of_words as bag_of_words
  from tasks.models import distilbert as distilbert
  from tasks.models import lstm as lstm
  from tasks.models import multi_label as multi_label
  from tasks.models import next_token as next_token
  from tasks.models import parabola as parabola
  from tasks.models import resnet as resnet
  from tasks.models import single_label as single_label
  from tasks.models import vit as vit
else:
  assembly = lazy.Module('tasks.assembly')
  class_names = lazy.Module('tasks.class_names')
  columns = lazy.Module('tasks.formats.columns')
  encodings = lazy.Module('tasks.encodings')
  tables = lazy.Module('tasks.formats.tables')
  client_data = lazy.Module('tasks.client_data')
  fine_tuning = lazy.Module('tasks.fine_tuning')
  preprocessing = lazy.Module('tasks.preprocessing')
  jpeg = lazy.Module('tasks.formats.jpeg')
  sqlite_files = lazy.Module('tasks.formats.sqlite_files')
  vocabulary = lazy.Module('tasks.formats.vocabulary')
  bag_of_words = lazy.Module('tasks.models.bag_of_words')
  distilbert = lazy.Module('tasks.models.distilbert')
  lstm = lazy.Module('tasks.models.lstm')
  multi_label = lazy.Module('tasks.models.multi_label')
  next_token = lazy.Module('tasks.models.next_token')
  parabola = lazy.Module('tasks.models.parabola')
  resnet = lazy.Module('tasks.models.resnet')
  single_label = lazy.Module('tasks.models.single_label')
  vit = lazy.Module('tasks.models.vit')
