"""The output of studies: rows and figures, and what they count by."""

import csv

from matplotlib import figure as figure_lib

# Gradients that a local step of Delta-SGD takes, by --smoothness_batch.
GRADIENTS = {'same': 2, 'successive': 1}


def write_rows(path, rows):
  """Writes a CSV file; the columns are those of the first row."""
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)


def new_panels(rows, *, size, **sharing):
  """Creates a figure with rows of two panels; returns both."""
  figure = figure_lib.Figure(figsize=size, dpi=120, layout='constrained')
  panels = figure.subplots(rows, 2, squeeze=False, **sharing)
  for panel in panels.flat:
    panel.grid(alpha=0.3)
  return figure, panels
