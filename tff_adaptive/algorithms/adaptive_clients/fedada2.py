"""FedAda2."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedada2',
  printed='FedAda\N{SUPERSCRIPT TWO}',
  client='sm3_adagrad',
  server='adagrad',
  accepts={**methods.JOINT, 'client': ('sm3_adagrad', 'sm3_adam')},
  client_words='SM3',
  server_words='Adagrad, Adam, Yogi, AMS',
  costs=methods.Costs(optimizer=0.008),
  look=17,
)
class FedAda2(methods.Options):
  """SM3 clients under an adaptive server (Lee et al.)."""
