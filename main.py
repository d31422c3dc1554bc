"""Adaptive federated optimization from the command line.

python main.py                       trains the embedded default
python main.py --task=... --flags    trains what the flags say
python main.py sweep --axis=...      trains many, and says which is best
python main.py board                 tunes methods alike, and compares them
python main.py list                  says what there is
python main.py --help
"""

from tff_adaptive.lab.commands.command_line import main
from tff_adaptive.lab.commands.command_line import run

__all__ = ['main', 'run']

if __name__ == '__main__':
  run()
