"""Command lines of short sweeps."""

SHORT = [
  *('--algorithm=fedavg', '--total_rounds=4', '--rounds_per_eval=2'),
  *('--clients_per_round=2', '--experiment_name=s'),
]


def arguments_of(root, *arguments):
  return [*SHORT, f'--root_output_dir={root}', '--workers=0', *arguments]
