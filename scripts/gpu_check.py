"""Check on this host's GPUs whether power, energy, device mapping, limits and training are right; writes a report.

Needs a Python with PyTorch, NumPy and nvidia-ml-py, and no network; its studies also need the packages of
pack_wheels.py. Exit codes: 0 no check failed, 1 a check failed, 2 there is no GPU.
"""

import argparse

from study.core import number_types
from study.core.errors import exit_with_message
from study.launch.gpu_check import run


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="parts, with commas between: calls, meters, mapping, limits, benchmarks, study, "
                        "emulated; by default all")  # fmt: skip
    parser.add_argument("--minutes", type=number_types.seconds, default=10.0, help="about how long it takes")
    parser.add_argument("--output", help="a new folder; by default one in results/gpu_check with the time")
    parser.add_argument("--cpu", action="store_true", help="run the studies on the CPU, small, to try an installation")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # of a process that the check starts
    run.main(parser.parse_args())


if __name__ == "__main__":
    exit_with_message(main)
