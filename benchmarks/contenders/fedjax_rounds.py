"""FedJAX's federated averaging with server Adam, for the benchmarks."""

import fedjax
import jax
import jax.numpy as jnp
import workload


def _forward(name: str):
  """Builds a function from weights (Keras' layout) and examples to logits."""

  def logistic(w, x):
    return x @ w[0] + w[1]

  def cnn(w, x):
    for kernel, bias in ((w[0], w[1]), (w[2], w[3])):
      x = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
      )
      x = jax.nn.relu(x + bias)
    x = jax.lax.reduce_window(
      x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID'
    )
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ w[4] + w[5])
    return x @ w[6] + w[7]

  def lstm_layer(x, kernel, recurrent, bias):
    """Maps [time, batch, inputs] to [time, batch, units]."""
    zeros = jnp.zeros((x.shape[1], recurrent.shape[0]))

    def step(state, projected):
      h, c = state
      i, f, g, o = jnp.split(projected + h @ recurrent, 4, axis=1)
      c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
      h = jax.nn.sigmoid(o) * jnp.tanh(c)
      return (h, c), h

    return jax.lax.scan(step, (zeros, zeros), x @ kernel + bias)[1]

  def lstm(w, x):
    x = w[0][x.T]
    x = lstm_layer(x, *w[1:4])
    x = lstm_layer(x, *w[4:7])
    return jnp.swapaxes(x @ w[7] + w[8], 0, 1)

  return {'logistic': logistic, 'tag': logistic, 'cnn': cnn, 'lstm': lstm}[name]


def make(options):
  forward = _forward(options.model)

  def loss_fn(weights, batch, rng):
    del rng
    if options.model == 'tag':
      z, y = forward(weights, batch['x']), batch['y']
      return jnp.mean(jax.nn.softplus(z) - y * z)
    chances = jax.nn.log_softmax(forward(weights, batch['x']))
    picked = jnp.take_along_axis(chances, batch['y'][..., None], axis=-1)
    return -jnp.mean(picked)

  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(loss_fn),
    fedjax.optimizers.sgd(workload.CLIENT_RATE),
    fedjax.optimizers.adam(
      workload.SERVER_RATE,
      b2=workload.SERVER_BETA_2,
      eps=workload.SERVER_EPSILON,
    ),
    fedjax.ShuffleRepeatBatchHParams(
      batch_size=options.batch_size,
      num_epochs=1,
      skip_shuffle=not (options.shuffle or options.population),
    ),
  )
  datasets = []
  for client in workload.population(options):
    x, y = workload.arrays(options, client)
    datasets.append(fedjax.ClientDataset({'x': x, 'y': y}))
  state = algorithm.init(
    [jnp.asarray(w) for w in workload.start_weights(options)]
  )
  holder, number = [state], [0]
  evaluate = jax.jit(loss_fn)

  def run():
    number[0] += 1
    round_key = jax.random.PRNGKey(number[0])
    clients = [
      (str(client), datasets[client], jax.random.fold_in(round_key, client))
      for client in workload.cohort(options, number[0])
    ]
    holder[0], _ = algorithm.apply(holder[0], clients)
    jax.block_until_ready(holder[0].params)

  def loss():
    losses = [
      evaluate(holder[0].params, data.all_examples(), None) for data in datasets
    ]
    return sum(map(float, losses)) / len(losses)

  return run, loss


if __name__ == '__main__':
  parsed = workload.parse()
  workload.serve(parsed, make)
