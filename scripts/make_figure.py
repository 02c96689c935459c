"""Draw one figure of a study, as SVG and PDF, from the records of the runs that it uses."""

import argparse
from functools import partial
from pathlib import Path

from study.core import paths
from study.core.errors import exit_with_message
from study.experiment.expansion import load_planned
from study.records.table_inputs import gather
from study.report.figures.description import describe, draws_targets
from study.report.figures.kinds import KINDS, Inputs


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", required=True, help="a figure of config/figures.yaml or config/papers")
    parser.add_argument("--study", required=True)
    for form in ("svg", "pdf"):
        parser.add_argument(f"--{form}", required=True, help="a file to write, in a study's folder figures")
    arguments = parser.parse_args()
    study, description = load_planned(arguments.study), describe(arguments.figure)
    kind, results = KINDS[description.kind], paths.machine_folder(Path(arguments.svg).parent)
    uses = partial(kind.uses, description)
    runs, loading = gather(study, results, uses, kind.uses_loading, kind.reads_further, draws_targets(description))
    kind.draw(description, Inputs(runs, loading, study.name, results), arguments.svg, arguments.pdf)


if __name__ == "__main__":
    exit_with_message(main)
