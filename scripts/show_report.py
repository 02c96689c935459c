"""Print where the report of a finished study is."""

import argparse
from pathlib import Path

from study.core import command_line, paths
from study.core.errors import StudyError, exit_with_message


def main() -> None:
    """Read the command line and print the path."""
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    arguments = command_line.parsed(parser)
    folder = paths.study_folder(Path(arguments.results_dir, arguments.machine), arguments.study)
    path = Path(folder, "report.html")
    if not path.exists():
        command_line.check_machine(arguments.machine, arguments.results_dir)
        how = command_line.how_to_run(arguments.study, arguments.machine)
        raise StudyError(f"{path} is not there; run the study first: {how}")
    print(f"The report is {path}; open it in a browser.")


if __name__ == "__main__":
    exit_with_message(main)
