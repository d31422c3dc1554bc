"""Short runs, whose settings are flags as people give them."""

from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.training import experiment


def parse(*flags):
  """Returns the settings that flags of the command line make."""
  return parsing.Flags().parse(flags).settings


def settings_of(folder, *flags, name='run'):
  """Returns the settings of a run whose own folder is `folder / name`."""
  return parse(
    f'--root_output_dir={folder}', f'--experiment_name={name}', *flags
  )


def train(settings):
  """Trains without a word."""
  return experiment.run(settings, say=lambda _: None)
