"""Check on this host's GPUs whether power, energy, device mapping, limits and training are right; writes a report.

Needs a Python with PyTorch, NumPy and nvidia-ml-py, and no network. Exit codes: 0 no check failed, 1 a check failed,
2 there is no GPU.
"""

from study.core.errors import exit_with_message
from study.launch.gpu_check import run


def main() -> None:
    """Read the command line and do it."""
    run.main(__doc__)


if __name__ == "__main__":
    exit_with_message(main)
