"""Make one table of a study, as CSV, Markdown, LaTeX and HTML, from the records of the runs that it uses."""

import argparse
import dataclasses
from pathlib import Path

from study.compare import first_verdicts
from study.core import paths
from study.core.errors import exit_with_message
from study.core.wording import counted
from study.experiment.expansion import load_planned
from study.records.table_inputs import gather
from study.report.tables import TABLES
from study.report.tables.kinds import with_own_keys


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, choices=list(TABLES))
    parser.add_argument("--study", required=True)
    for form in ("csv", "markdown", "latex", "html"):
        parser.add_argument(f"--{form}", required=True, help="a file to write, in a study's folder tables")
    arguments = parser.parse_args()
    study, kind = load_planned(arguments.study), TABLES[arguments.table]
    results = paths.machine_folder(Path(arguments.csv).parent)
    runs, loading = gather(
        study, results, kind.uses, kind.uses_loading, kind.reads_further, kind.reads_targets, kind.reads_storage
    )
    folder, of = Path(paths.study_folder(results, study.name)), f"table_{arguments.table}"
    earlier = first_verdicts.read(folder, of) if kind.verdicts else {}
    runs, late = first_verdicts.drop_later_runs(runs, earlier)
    table = with_own_keys(kind.make(runs, loading), runs)
    told = [f"{counted(late, 'run')} added after a verdict was seen: left out"] if late else []
    table = dataclasses.replace(table, caption=f"study {study.name}: {table.caption}", notes=[*table.notes, *told])
    if kind.verdicts and (seen := first_verdicts.add_verdicts(runs, table.judged(kind.verdicts), earlier)) != earlier:
        first_verdicts.write(folder, of, seen)
    table.write(arguments.csv, arguments.markdown, arguments.latex, arguments.html)


if __name__ == "__main__":
    exit_with_message(main)
