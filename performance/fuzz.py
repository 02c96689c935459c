"""Damage every file that a step reads by its structure; each case must end in a line of error or in the right value.

The cases are shared among all readers. The table (counts by reader) is written to performance/fuzz.csv after each
reader; it keeps its lines of readers that were not tried. Exits with 1 if a case was wrong, crashed the process or took
too long; the shortest such case of each kind is printed. The readers are in tests/fuzz/.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import readers

from study.core import number_types

ROOT = Path(__file__).resolve().parents[1]
BATCH = ROOT / "tests" / "fuzz" / "batch.py"
TABLE = ROOT / "performance" / "fuzz.csv"
COLUMNS = ["reader", "format", "cases", "different", "refused", "read", "wrong", "seed", "message"]


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=number_types.parse_count, default=5000, help="altogether")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="readers with this in their name or format")
    parser.add_argument("--resume", action="store_true", help="leave out readers of which the table has as many cases")
    arguments = parser.parse_args()
    all_readers, table = readers.import_all(), _read_table()
    cases_per_reader = -(-arguments.cases // len(all_readers))
    chosen = [name for name, entry in all_readers.items() if arguments.only in f"{entry.format} {name}"]
    if not chosen:
        raise SystemExit(f"error: no reader has {arguments.only!r} in its name or format")
    if arguments.resume:
        finished = table[(table["cases"] >= cases_per_reader) & (table["wrong"] == 0)]
        chosen = [name for name in chosen if name not in set(finished["reader"])]
    for row in fuzz_readers(chosen, cases_per_reader, arguments.seed):
        row |= {"format": all_readers[row["reader"]].format, "seed": arguments.seed}
        table = pd.concat([table[table["reader"] != row["reader"]], pd.DataFrame([row])])[COLUMNS]
        table = table[table["reader"].isin(list(all_readers))]
        table.sort_values("reader", key=lambda names: names.map(list(all_readers).index)).to_csv(TABLE, index=False)
        print(f"{row['cases']:5d} cases, {row['refused']:5d} refused, {row['read']:5d} read, {row['wrong']:3d} wrong  "
              f"{row['reader']}  {row['message'] or ''}", flush=True)  # fmt: skip
    by_format = table.groupby("format")[["cases", "refused", "read", "wrong"]].sum()
    print(f"{by_format.to_string()}\n{by_format['cases'].sum()} cases of {len(table)} readers")
    sys.exit(1 if by_format["wrong"].sum() else 0)


def fuzz_readers(remaining, cases, seed):
    """Fuzz the readers, yielding a row of each; a new process goes on behind a reader that ended the last one."""
    remaining = list(remaining)
    while remaining:
        with tempfile.TemporaryDirectory(prefix="fuzz.") as folder:
            line = [sys.executable, BATCH, *remaining, "--cases", cases, "--seed", seed, "--folder", folder]
            errors = Path(folder, "errors")
            with open(errors, "w", encoding="utf-8") as error_file:
                process = subprocess.Popen(
                    [*map(str, line)], stdout=subprocess.PIPE, stderr=error_file, text=True, env=_make_environment()
                )
                for text in process.stdout:
                    yield _make_row(json.loads(text))
                    remaining.pop(0)
            if process.wait():
                last, words = Path(folder, "case"), errors.read_text(encoding="utf-8", errors="replace")
                print(words[-3000:], last.read_bytes()[:1000] if last.exists() else "", sep="\n", file=sys.stderr)
                yield {
                    "reader": remaining.pop(0),
                    "cases": cases,
                    "different": None,
                    "refused": 0,
                    "read": 0,
                    "wrong": 1,
                    "message": f"the process ended with {process.returncode}: {' '.join(words.split())[-200:]}",
                }


def _make_row(result):
    """Make a reader's row, and print its wrong cases."""
    for each in result["wrong"]:
        case = bytes.fromhex(each["case"])[:1000]
        print(f"{result['reader']}: {each['what']}: {case!r}", file=sys.stderr)
    counts = {name: result[name] for name in ("reader", "cases", "different", "refused", "read")}
    message = "; ".join(each["what"] for each in result["wrong"])[:300] or None
    return counts | {"wrong": sum(each["times"] for each in result["wrong"]), "message": message}


def _make_environment():
    """Make the environment variables of the process that fuzzes."""
    folders = [ROOT / "tests" / name for name in ("fuzz", "unit", "workflow")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_NUM_THREADS": "1"}


def _read_table():
    """Read the rows of earlier runs."""
    return pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=COLUMNS)


if __name__ == "__main__":
    main()
