"""Check on this host's GPUs whether meters, device mapping, limits and training are right; writes a report.

It needs PyTorch with CUDA: make setup WITH=pytorch. Exit codes: 0 no check is not ok, 1 a check is not ok, 2 there is
no GPU.
"""

import argparse

from study.contrib.gpu_check.check import check_gpus
from study.core import number_types
from study.core.errors import exit_with_message


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=number_types.seconds, default=10.0, help="its study is ended after so long")
    parser.add_argument("--output", help="a new folder; by default one in results/gpu_check with the time")
    arguments = parser.parse_args()
    check_gpus(arguments.output, arguments.minutes)


if __name__ == "__main__":
    exit_with_message(main)
