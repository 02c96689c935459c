"""Set limits of power and clock rate on this host until standard input ends, then put back what was there.

The launch of a run starts it. With --restore, it puts back what runs left whose processes were all killed.
"""

import argparse
import sys

from study.core.errors import exit_with_message
from study.machines.limits import Place, holder


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restore", action="store_true", help="put back what is left, and say what it was")
    if not parser.parse_args().restore:
        holder.main()
        return
    for each in holder.restore_left(Place()):
        print(f"{each.limit} on {each.device}: {'restored' if each.restored else f'NOT restored: {each.why}'}")
        if not each.restored:
            sys.exit(1)


if __name__ == "__main__":
    exit_with_message(main)
