"""Convert one CSV file of a dataset into a float32 matrix and its sidecar."""

import argparse

from study.datasets.conversion import Expected, convert
from study.errors import exit_with_message


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="the CSV file")
    parser.add_argument("--matrix", required=True, help="the .npy file to write")
    parser.add_argument("--sidecar", required=True, help="the .json file to write")
    parser.add_argument("--label-column", required=True, type=int, help="counted from 0")
    parser.add_argument("--classes", required=True, type=int)
    parser.add_argument("--rows", type=int, help="refuse a file with another number of rows")
    parser.add_argument("--columns", type=int, help="refuse a file with another number of columns")
    arguments = parser.parse_args()
    expected = Expected(arguments.label_column, arguments.classes, arguments.rows, arguments.columns)
    convert(arguments.source, arguments.matrix, arguments.sidecar, expected)


if __name__ == "__main__":
    exit_with_message(main)
