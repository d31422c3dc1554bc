"""A machine that trains clients of others' runs: `main.py worker`.

Importing this module imports no TensorFlow, so that bad flags are told at once.
"""

from collections.abc import Sequence
from typing import Annotated
from typing import Literal

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import runtime
from tff_adaptive.flags import options as options_lib
from tff_adaptive.flags import runtime as runtime_flags

USAGE = """worker --port=PORT [--flag=value ...]

Trains clients for runs elsewhere, which name this machine in
  python main.py --runtime=remote --worker_addresses=HOST:PORT,HOST:PORT,...
until Ctrl-C or SIGTERM. Whoever can reach the port can run any TensorFlow code
here, so it is open to this machine only unless --bind_address says otherwise,
and then only with TLS; docs/runtimes.md has the commands."""
_flag = parameters.Parameter
_FLAGS = (
  _flag(
    'port',
    Annotated[int, parameters.Range(low=0, high=65535)],
    None,
    'Port to listen on; 0 picks a free one, which is printed.',
  ),
  _flag(
    'bind_address',
    str,
    '127.0.0.1',
    'Network interface to listen on; 0.0.0.0 is every one.',
  ),
  _flag(
    'certificate',
    str,
    None,
    "File with this worker's certificate (PEM); turns TLS on.",
  ),
  _flag('private_key', str | None, None, 'File with its key (PEM).'),
  _flag(
    'trainer_certificate',
    str,
    None,
    'File with the certificates of those who may use this worker, or of who '
    'signed these; nobody else is served.',
  ),
  _flag(
    'insecure',
    bool,
    False,
    'Listen to other machines without TLS: in a network all of whose users '
    'may run code here.',
  ),
  _flag(
    'engine',
    Literal[runtime.ENGINES],
    runtime.ENGINES[0],
    "What runs the clients: this program, or TFF's own worker, which is "
    'CPU-only, has no TLS, and listens on every interface.',
  ),
  runtime_flags.MAX_CONCURRENT_CLIENTS,
  runtime_flags.DEVICES,
  _flag(
    'end_with_parent',
    bool,
    False,
    'End when the process that started this one has ended.',
  ),
)


def build_options() -> options_lib.Options:
  """The flags of `main.py worker`."""
  return options_lib.Options(*_FLAGS)


def main(arguments: Sequence[str]) -> int:
  """`main.py worker`; returns the exit code."""
  values, words = build_options().read(arguments)
  options_lib.refuse_words(words)
  if values['port'] is None:
    raise errors.SettingsError(
      'worker needs --port, the port to listen on, such as --port=8000.'
    )
  values['devices'] = runtime_flags.device_names(values['devices'])
  try:
    return runtime.serve_worker(**values)
  except ValueError as e:
    raise options_lib.refusal(runtime_flags.of_runtime(e)) from e
  except OSError as e:
    raise errors.RunError(str(e)) from e
