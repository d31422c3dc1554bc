"""Which weights of a network that was trained before are trained further."""

from typing import Optional

from tff_adaptive import parameters


def check(fine_tune: str, weights_dir: Optional[str], data: str) -> None:
  """Raises ParameterError if a head would be trained on random features.

  Made-up data are for trying things out; there it may.
  """
  if fine_tune == 'head' and weights_dir is None and data != 'synthetic':
    raise parameters.ParameterError(
      'fine_tune',
      '{}=head trains a classifier on features that {weights_dir} brings; '
      'without it they are random. Give it, or {fine_tune}=all.',
    )
