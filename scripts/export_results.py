"""Pack a study's results into one archive: report, tables, figures, findings, and the records of its runs.

The archive has each file's checksum (SHA256SUMS). Archives of the same results are the same, bit by bit. With --format
mlflow the runs and findings are written into a file store of MLflow instead. Starts no run.
"""

import argparse
from pathlib import Path

from study.contrib.exports import EXPORTS
from study.contrib.exports.kinds import Results
from study.core import command_line
from study.core.errors import StudyError, exit_with_message


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    parser.add_argument(
        "--format", choices=["archive", "mlflow"], default="archive", help="an archive, or a file store of MLflow"
    )
    parser.add_argument("--output", type=Path, help="a file; by default STUDY.tar.gz, in the folder of the studies; of "
                        "mlflow a folder, by default mlruns")  # fmt: skip
    arguments = command_line.parsed(parser)
    results = Results(arguments.study, Path(arguments.results_dir, arguments.machine))
    if not (results.folder / "runs.csv").is_file():
        command_line.check_machine(arguments.machine, arguments.results_dir)
        how = command_line.how_to_run(arguments.study, arguments.machine)
        raise StudyError(f"{results.folder / 'runs.csv'} is not there; run the study first: {how}")
    kind = EXPORTS[arguments.format]
    name = kind.name(arguments.study)
    output = arguments.output or (Path(name) if kind.is_folder else results.folder.with_name(name))
    if kind.is_folder and output.exists() and not output.is_dir():
        raise StudyError(f"--output: {output} is a file; a folder is expected")
    if not kind.is_folder and output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a file is expected")
    print(kind.write(results, output))


if __name__ == "__main__":
    exit_with_message(main)
