"""JointZeroInit: adaptive clients and an adaptive server."""

from tff_adaptive.algorithms import methods


@methods.method(
  'joint_zero_init',
  printed='Joint zero init',
  client='adagrad',
  server='adagrad',
  accepts=methods.JOINT,
  client_words='AdaGrad, Adam or SM3',
  server_words='Adagrad, Adam, Yogi, AMS',
  costs=methods.Costs(optimizer=1),
  look=16,
)
class JointZeroInit(methods.Options):
  """Adaptive clients that start from zero under an adaptive server (Lee et
  al.).
  """
