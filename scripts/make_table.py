"""Make one table, as CSV, Markdown, LaTeX and HTML, from the tidy tables."""

import argparse
import dataclasses

from study.core.errors import exit_with_message
from study.records import tidy
from study.report.tables import TABLES


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, choices=list(TABLES))
    parser.add_argument("--study", required=True, help="named in the caption")
    parser.add_argument("--runs", required=True, help="runs.csv")
    parser.add_argument("--loading", required=True, help="loading.csv")
    for form in ("csv", "markdown", "latex", "html"):
        parser.add_argument(f"--{form}", required=True, help="a file to write")
    arguments = parser.parse_args()
    table = TABLES[arguments.table].make(tidy.read_runs(arguments.runs), tidy.read_loading(arguments.loading))
    table = dataclasses.replace(table, caption=f"study {arguments.study}: {table.caption}")
    table.write(arguments.csv, arguments.markdown, arguments.latex, arguments.html)


if __name__ == "__main__":
    exit_with_message(main)
