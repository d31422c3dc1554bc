"""The rows that studies write, and what they count by."""

import csv

# Gradients that a local step of Delta-SGD takes, by --smoothness_batch.
GRADIENTS = {'same': 2, 'successive': 1}


def gradients(settings, row):
  """Counts the gradients that the clients of a round took."""
  each = GRADIENTS.get(settings.get('smoothness_batch'), 1)
  return each * row.get('clients/steps', 0)


def write_rows(path, rows):
  """Writes a CSV file; the columns are those of the first row."""
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)


def read_rows(path):
  """Reads a CSV file as a list of rows by column."""
  with open(path, encoding='utf-8', newline='') as file:
    return list(csv.DictReader(file))
