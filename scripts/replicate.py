"""Run a study several times afresh, and say whether the intervals of its findings hold.

Each time has results of its own, so this resumes where it stopped. It prints the table and writes it as CSV, Markdown,
LaTeX and HTML.
"""

import argparse
import sys
from pathlib import Path

from study.cli import profiles
from study.core import command_line, number_types, paths
from study.core.errors import StudyError, exit_with_message
from study.experiment.expansion import load_study
from study.machines import machine
from study.report.findings import replication
from study.report.page import findings
from study.workflow import passes


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    parser.add_argument("--times", type=number_types.count, default=8, help="8 by default")
    parser.add_argument("--profile", default="local", help="of Snakemake; local by default")
    parser.add_argument("--output", help="a folder for the table; by default in the results")
    arguments = command_line.parsed(parser)
    study = load_study(arguments.study, machine.load(arguments.machine))
    if not study.findings:
        raise StudyError(f"study {study.name}: declares no findings, so there is nothing to compare; add findings")
    folder = Path(arguments.results_dir, "replicates", study.name)
    times = range(1, arguments.times + 1)
    for number in times:
        print(f"replicate {number} of {arguments.times}", file=sys.stderr, flush=True)
        _run(study.name, arguments, folder / str(number))
    of_times = [Path(paths.study_folder(folder / str(number) / arguments.machine, study.name)) for number in times]
    made = replication.table(study.name, [findings.read(each) for each in of_times])
    output = Path(arguments.output or folder)
    output.mkdir(parents=True, exist_ok=True)
    made.write_to(output)
    print(made.markdown())


def _run(study: str, arguments: argparse.Namespace, results: Path) -> None:
    """Run the study; runs that are there already are not run again."""
    program = Path(sys.executable).with_name("snakemake")
    config = [f"study={study}", f"machine={arguments.machine}", f"results_dir={results}"]
    line = [str(program), *profiles(arguments.profile), "--config", *config]
    code = passes.all_of(line).code
    if code > passes.SIGNALLED:
        sys.exit(code)
    if code:
        raise StudyError(f"{results}: the study did not finish; correct the error above, then start this again")


if __name__ == "__main__":
    exit_with_message(main)
