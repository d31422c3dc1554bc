"""A machine that trains clients of others' runs: `main.py worker`.

Importing this module imports no TensorFlow, so that bad flags are told at once.
"""

from collections.abc import Sequence

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.flags import options as options_lib
from tff_adaptive.flags import runtime_flags

USAGE = """worker --port=PORT [--flag=value ...]

Trains clients for runs elsewhere, which name this machine in
  python main.py --runtime=remote --worker_addresses=HOST:PORT,HOST:PORT,...
until Ctrl-C or SIGTERM. Whoever can reach the port can run any TensorFlow code
here, so it is open to this machine only unless --bind_address says otherwise,
and then only with TLS; docs/runtimes.md has the commands."""


def build_options() -> options_lib.Options:
  """Declares the flags of `main.py worker`: the arguments of `serve_worker`."""
  return options_lib.Options(
    *runtime_flags.flags_of(runtime.serve_worker).values()
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py worker`; returns the exit code."""
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
