"""Settings that papers published, as flag files.

`PAPER/TASK/METHOD.flags`; `main.py --preset=PAPER/TASK/METHOD` reads one, and
so does absl's own `--flagfile`. tools/make_presets.py writes them.
"""
