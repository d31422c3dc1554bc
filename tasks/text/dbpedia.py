"""Classification of DBpedia articles over clients.

As in Kim et al., arXiv 2306.11201: 60 clients of 500 texts by Dirichlet label
skew, and DistilBERT. Without a folder of weights the same architecture is
trained from scratch on the words of the training texts, a different (and
harder) problem than the paper's.
"""

from __future__ import annotations

from tasks import catalogue
from tasks.text import text_classification
from tff_adaptive.lazy import tff

NUM_CLASSES = 14


@catalogue.task(
  'dbpedia',
  summary='Tell what kind of thing a text of DBpedia is about.',
  model='DistilBERT-shaped encoder, 66,669,326 weights',
  clients='60 of 500 texts (--dbpedia_num_clients)',
  files=('dbpedia/train.csv', 'dbpedia/test.csv'),
  published=catalogue.Published('Kim et al., arXiv 2306.11201', 100, 6, 16),
  small_options=dict(blocks=1, width=64, vocab_size=500, max_length=16),
)
class Dbpedia(text_classification.Options):
  """Tokens int32 [batch, 128], labels 0 to 13."""

  titles: bool = True
  """Whether an article's title is read with its text; the code of Kim et al.
  reads the text alone."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return text_classification.create(
      'dbpedia', NUM_CLASSES, options=self.values
    )
