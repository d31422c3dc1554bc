"""Records what optax's Prodigy, DoG and schedule-free SGD do.

  pip install optax==0.2.8
  python -m tests.optimizers.optax_paths > tests/optimizers/optax_paths.json

optax needs JAX, which is not among this project's packages; the tests compare
with what is recorded, and with optax itself where it is installed.
"""

import json

import numpy as np

# Batch k has the loss sum(a_k (x - b_k)^2) / 2, from START.
START = (1.0, -2.0, 0.5)
CURVATURES = (
  (1.0, 3.0, 0.5),
  (2.0, 0.3, 1.5),
  (0.2, 1.0, 4.0),
  (1.5, 2.5, 0.1),
) * 3
MINIMA = (
  (0.0, 0.5, 0.0),
  (0.3, -0.5, 1.0),
  (2.0, 0.0, -0.4),
  (-1.0, 0.2, 0.0),
) * 3
# A negligible epsilon: optax has Prodigy's d epsilon with the new d.
SETTINGS = {
  'dog': {'learning_rate': 0.7, 'r_epsilon': 1e-2, 'epsilon': 1e-8},
  'prodigy': {'learning_rate': 0.8, 'epsilon': 1e-30, 'd_0': 1e-2},
  'schedule_free_sgd': {'learning_rate': 0.3, 'beta_1': 0.8},
}


def paths():
  """x after every step, by rule."""
  # pylint: disable=g-import-not-at-top
  import jax
  import jax.numpy as jnp
  import optax
  from optax import contrib

  jax.config.update('jax_enable_x64', True)

  def uncorrected(rate):
    """Takes back the bias correction, which optax multiplies the rate with."""

    def of_step(count):
      k = count + 1
      return rate * (1 - 0.9**k) / jnp.sqrt(1 - 0.999**k)

    return of_step

  dog, prodigy, free = (
    SETTINGS[name] for name in ('dog', 'prodigy', 'schedule_free_sgd')
  )
  rules = {
    'dog': contrib.dog(
      learning_rate=dog['learning_rate'],
      init_step=('heuristic', dog['r_epsilon']),
      eps=dog['epsilon'],
    ),
    'prodigy': contrib.prodigy(
      learning_rate=uncorrected(prodigy['learning_rate']),
      eps=prodigy['epsilon'],
      estim_lr0=prodigy['d_0'],
    ),
    'schedule_free_sgd': contrib.schedule_free_sgd(
      learning_rate=free['learning_rate'], b1=free['beta_1']
    ),
  }
  found = {}
  for name, rule in rules.items():
    x = {
      'a': jnp.asarray(START[:2], jnp.float64),
      'b': jnp.asarray(START[2:], jnp.float64),
    }
    state, path = rule.init(x), []
    for a, b in zip(CURVATURES, MINIMA, strict=True):
      at = np.concatenate([x['a'], x['b']])
      g = np.asarray(a) * (at - np.asarray(b))
      change, state = rule.update({'a': g[:2], 'b': g[2:]}, state, x)
      x = optax.apply_updates(x, change)
      sent = x
      if name == 'schedule_free_sgd':
        sent = contrib.schedule_free_eval_params(state, x)
      path.append([*map(float, sent['a']), *map(float, sent['b'])])
    found[name] = path
  return found


if __name__ == '__main__':
  lines = (
    f' "{rule}": [\n  '
    + ',\n  '.join(json.dumps([round(v, 12) for v in x]) for x in path)
    + '\n ]'
    for rule, path in paths().items()
  )
  print('{\n' + ',\n'.join(lines) + '\n}')
