"""Pack a study's results into one archive: report, tables, figures, findings, and the records of its runs.

The archive is an RO-Crate (ro-crate-metadata.json) with each file's checksum (SHA256SUMS). Archives of the same results
are the same, bit by bit. With --format mlflow the runs and findings are written into a file store of MLflow instead.
Starts no run.
"""

import argparse
from pathlib import Path

from study.core import archive, command_line, paths
from study.core.csv_files import read_rows
from study.core.errors import StudyError, exit_with_message
from study.core.wording import counted
from study.report.exports import mlflow, ro_crate

OF_A_RUN = ("record.json", "run.yaml", "outcome.json", "provenance.json", "phases.jsonl", "history.csv", "members.csv")
SHOW = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri"  # MLflow 3.17 reads files only if it is told to
LEFT_OUT = ("logs",)  # folders of a study's results


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    parser.add_argument(
        "--format", choices=["archive", "mlflow"], default="archive", help="an archive, or a file store of MLflow"
    )
    parser.add_argument("--output", type=Path, help="a file; by default STUDY.tar.gz, in the folder of the studies; of "
                        "mlflow a folder, by default mlruns")  # fmt: skip
    arguments = command_line.parsed(parser)
    results = Path(arguments.results_dir, arguments.machine)
    folder = Path(paths.study_folder(results, arguments.study))
    if not (folder / "runs.csv").is_file():
        command_line.check_machine(arguments.machine, arguments.results_dir)
        how = command_line.how_to_run(arguments.study, arguments.machine)
        raise StudyError(f"{folder / 'runs.csv'} is not there; run the study first: {how}")
    if arguments.format == "mlflow":
        _store(folder, results, arguments.output or Path("mlruns"))
        return
    output = arguments.output or folder.with_name(f"{arguments.study}.tar.gz")
    if output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a file is expected")
    members = found(results, folder)
    crate = ro_crate.metadata(arguments.machine, arguments.study, _rows(folder / "runs.csv"), members)
    members[ro_crate.FILE] = crate
    archive.write(output, f"{arguments.machine}-{arguments.study}", members)
    print(f"{output}: {counted(len(members), 'file')}, {output.stat().st_size / 1e6:.1f} MB")


def _store(folder: Path, results: Path, store: Path) -> None:
    if store.exists() and not store.is_dir():
        raise StudyError(f"--output: {store} is a file; a folder is expected")
    experiment, number = mlflow.write(folder, results, store)
    print(f"{experiment}: {counted(number, 'run')}; see them with: {SHOW} {store}")


def found(results: Path, folder: Path) -> dict[str, Path | bytes]:
    """{path in the archive: file}, laid out as the results. results: of the machine. folder: of the study."""
    own = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in LEFT_OUT]
    names = [row["record"] for name in ("runs.csv", "loading.csv", "attempts.csv") for row in _rows(folder / name)]
    of_runs = [results / name for name in dict.fromkeys(names)]
    for record in list(of_runs):
        of_runs += [other for name in OF_A_RUN if (other := record.with_name(name)).is_file()]
    of_study = {path.relative_to(results).as_posix(): path for path in [*own, *of_runs]}
    return {**of_study, **ro_crate.workflow_files()}


def _rows(path: Path) -> list[dict[str, str]]:
    return read_rows(path, ("record",)) if path.is_file() and path.read_bytes().strip() else []


if __name__ == "__main__":
    exit_with_message(main)
