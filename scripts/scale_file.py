"""Scale the numbers of one converted file for the loader ``mapped``, and store its categories separately."""

import argparse

from study.core.errors import StudyError, exit_with_message
from study.core.files import read_json, write_sealed
from study.data import feature_scaling
from study.data.loaders import map_matrix, read_sidecar


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="the file's name in the benchmark's YAML")
    parser.add_argument("matrix", help="the converted file")
    parser.add_argument("sidecar", help="the converted file's")
    parser.add_argument("--scalers", required=True, help="the .npz file of fit_scalers.py")
    parser.add_argument("--fitted-on", required=True, help="the .json file of fit_scalers.py")
    parser.add_argument("--output", required=True, help="the .npy file of the numbers to write")
    parser.add_argument("--codes", required=True, help="the .npy file of the columns of categories to write")
    parser.add_argument(
        "--scaled-sidecar", required=True, help="the .json file to write, which names its converted files"
    )
    arguments = parser.parse_args()
    described, fitted_on = read_sidecar(arguments.sidecar), read_json(arguments.fitted_on)
    if fitted_on["fitted_on"].get(arguments.file) != described["sha256"]:
        raise StudyError(f"{arguments.scalers}: fitted on other files; delete it, and Snakemake makes it again")
    matrix, codes = map_matrix(arguments.matrix), len(described["codes"])
    feature_scaling.save_codes(matrix[:, :codes], arguments.codes)
    feature_scaling.prepare(
        matrix[:, codes:], feature_scaling.saved(arguments.scalers, arguments.file), arguments.output
    )
    write_sealed(arguments.scaled_sidecar, fitted_on)


if __name__ == "__main__":
    exit_with_message(main)
