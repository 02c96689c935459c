"""Convert one file of a dataset into a float32 matrix and its sidecar."""

import argparse
import json

from study.core import number_types
from study.core.errors import exit_with_message
from study.data.conversion import convert
from study.data.tabular import Form


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="the text table")
    parser.add_argument("--matrix", required=True, help="the .npy file to write")
    parser.add_argument("--sidecar", required=True, help="the .json file to write")
    parser.add_argument("--form", required=True, type=json.loads, help="as in the benchmark's YAML, as JSON")
    parser.add_argument("--rows", type=number_types.count, help="refuse a file with another number of rows")
    parser.add_argument("--columns", type=number_types.count, help="refuse a file with another number of columns")
    parser.add_argument(
        "--checksum", help="file with the SHA-256 that the table had when it was fetched, if there is one"
    )
    parser.add_argument("--token", help="what tells this state of the file from the one before, for the sidecar")
    arguments = parser.parse_args()
    form = Form.of(arguments.form)
    convert(
        arguments.source,
        arguments.matrix,
        arguments.sidecar,
        form,
        arguments.rows,
        arguments.columns,
        arguments.checksum,
        arguments.token,
    )


if __name__ == "__main__":
    exit_with_message(main)
