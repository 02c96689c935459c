"""Fit a benchmark's scalers on its converted files and write their parameters."""

import argparse
import json

from study import workloads
from study.core import configuration
from study.core.errors import exit_with_message
from study.core.files import write_sealed
from study.data import feature_scaling
from study.data.loaders import map_matrix, read_sidecar
from study.experiment import conversions, inputs
from study.workloads.base import Table


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--files", required=True, type=json.loads, help="{file: its converted matrix} as JSON")
    parser.add_argument("--output", required=True, help="the .npz file to write")
    parser.add_argument("--sidecar", required=True, help="the .json file to write, which names the converted files")
    arguments = parser.parse_args()
    described = conversions.describe_scaling(inputs.sidecars(arguments.files))
    tables = {
        file: Table(map_matrix(path), [code["values"] for code in read_sidecar(inputs.sidecar(path))["codes"]])
        for file, path in arguments.files.items()
    }
    benchmark = workloads.get(arguments.benchmark, configuration.load_named("benchmarks", arguments.benchmark))
    feature_scaling.save(benchmark.scalers(tables), arguments.output)
    write_sealed(arguments.sidecar, described)


if __name__ == "__main__":
    exit_with_message(main)
