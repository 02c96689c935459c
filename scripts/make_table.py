"""Make one table, as CSV, Markdown and LaTeX, from the tidy tables."""

import argparse
from pathlib import Path

import pandas as pd

from study.errors import exit_with_message
from study.tables import TABLES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, choices=list(TABLES))
    parser.add_argument("--runs", required=True, help="runs.csv")
    parser.add_argument("--loading", required=True, help="loading.csv")
    parser.add_argument("--output", required=True, type=Path, help="the file to write without its ending")
    arguments = parser.parse_args()
    table = TABLES[arguments.table](pd.read_csv(arguments.runs), pd.read_csv(arguments.loading))
    table.write(*(arguments.output.with_name(arguments.output.name + ending) for ending in (".csv", ".md", ".tex")))


if __name__ == "__main__":
    exit_with_message(main)
