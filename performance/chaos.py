"""Rounds of chaos: a small study runs while faults strike it at random moments, several at once.

Round number n has seed n; the seed fixes what strikes and when (tests/faults/rounds.py). After each round the tables,
records and files must be right, and nothing may be left. Writes one row per round to performance/chaos.csv. Rounds that
passed before are skipped, except with --rounds 1. Exits with 1 if one failed; it is printed how to repeat it alone.
"""

import argparse
import contextlib
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import commits
import pandas as pd
import rounds

from study.core import number_types, signals
from study.core.files import write_aside

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "performance" / "chaos.csv"
COLUMNS = ["seed", "start", "strikes", "happened", "outcome", "wrong", "seconds", "commit", "host"]


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--rounds", type=number_types.parse_count, default=10)
    parser.add_argument("--keep", type=Path, help="folder that keeps the files of failing rounds")
    arguments = parser.parse_args()
    signals.set_handlers(signals.exit_on_signal, signals.TERMINATING)  # so that it ends what it started
    rows = {row["seed"]: row for row in _read_earlier_rows()}
    wanted = range(arguments.seed, arguments.seed + arguments.rounds)
    seeds = [seed for seed in wanted if len(wanted) == 1 or seed not in rows or rows[seed]["outcome"] != "pass"]
    with tempfile.TemporaryDirectory(prefix="chaos.") as folder:
        reference = _make_reference(Path(folder) / "reference") if seeds else None
        for number, seed in enumerate(seeds, start=1):
            played = _play_round(seed, reference, Path(folder) / str(seed), arguments.keep)
            rows[seed] = _make_row(played)
            with write_aside(TABLE) as aside:
                pd.DataFrame([rows[each] for each in sorted(rows)], columns=COLUMNS).to_csv(aside, index=False)
            _print_round(played, number, len(seeds))
    failed = [seed for seed in wanted if rows[seed]["outcome"] != "pass"]
    print(f"{len(wanted)} rounds, {len(seeds)} of them now: {len(failed)} failed {failed or ''}")
    sys.exit(1 if failed else 0)


def _make_reference(folder):
    """Make the undisturbed study that rounds are compared with."""
    try:
        return rounds.Reference.make(folder)
    except RuntimeError as error:
        sys.exit(f"error: {error}")


def _read_earlier_rows():
    """Read the rows of earlier rounds."""
    return pd.read_csv(TABLE, keep_default_na=False).to_dict("records") if TABLE.exists() else []


def _play_round(seed, reference, folder, keep):
    """Play a round; its files are removed, or with ``keep`` moved there if it failed."""
    folder.mkdir()
    played = rounds.play(seed, reference, folder)
    if played.wrong and keep:
        shutil.move(folder, keep / f"seed-{seed}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    return played


def _make_row(played):
    """Make the row of a round."""
    return {
        "seed": played.seed, "start": played.plan.start, "strikes": "; ".join(map(str, played.plan.blows)),
        "happened": "; ".join(played.told), "outcome": "FAIL" if played.wrong else "pass",
        "wrong": "; ".join(played.wrong)[:2000], "seconds": round(played.seconds, 1),
        "commit": commits.describe_commit(),
        "host": platform.node(),
    }  # fmt: skip


def _print_round(played, number, rounds):
    """Print the outcome of a round, and how to repeat a failed one."""
    print(
        f"{number}/{rounds}  seed {played.seed}  {'FAIL' if played.wrong else 'pass'}  {played.seconds:.0f} s",
        flush=True,
    )
    if played.wrong:
        print(
            *(f"    struck: {each}" for each in played.told), *(f"    wrong: {each}" for each in played.wrong), sep="\n"
        )
        print(f"    repeat it: make chaos SEED={played.seed} ROUNDS=1", flush=True)


if __name__ == "__main__":
    main()
