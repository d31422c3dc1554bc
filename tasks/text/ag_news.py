"""Topic classification of AG News over clients.

As in Kim et al., arXiv 2306.11201: 60 clients of 500 texts by Dirichlet label
skew, and DistilBERT. Without a folder of weights the same architecture is
trained from scratch on the words of the training texts, a different (and
harder) problem than the paper's.
"""

from __future__ import annotations

from tasks import catalogue
from tasks.text import text_classification
from tff_adaptive.lazy import tff

NUM_CLASSES = 4


@catalogue.task(
  'ag_news',
  summary='Tell the topic of news in AG News, split by label skew.',
  model='DistilBERT-shaped encoder, 66,661,636 weights',
  clients='60 of 500 texts (--ag_news_num_clients)',
  files=('ag_news/train.csv', 'ag_news/test.csv'),
  published=catalogue.Published('Kim et al., arXiv 2306.11201', 100, 6, 16),
  small_options=dict(blocks=1, width=64, vocab_size=500, max_length=16),
)
class AgNews(text_classification.Options):
  """Tokens int32 [batch, 128], labels 0 to 3."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return text_classification.create(
      'ag_news', NUM_CLASSES, options=self.values
    )
