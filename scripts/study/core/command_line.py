"""What the scripts that a reader calls for a study have in common."""

import argparse
from pathlib import Path

from study.core import checked, configuration
from study.core.errors import StudyError


def of_a_study() -> argparse.ArgumentParser:
    """A parent parser with the study, the machine and the results' folder, to be read by `parsed`."""
    config = configuration.settings()
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("of_study", nargs="?", metavar="STUDY", help="a file name in config/studies without .yaml")
    parser.add_argument("--study", help="the same; by default that of config/config.yaml, else the machine's")
    parser.add_argument("--machine", default=config["machine"], help="by default that of config/config.yaml")
    parser.add_argument(
        "--results-dir", type=folder, default=config["results_dir"], help="by default that of config/config.yaml"
    )
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, read by a parser with the parent `of_a_study`; the study is that which Snakemake would plan."""
    arguments = parser.parse_args()
    if arguments.of_study and arguments.study not in (None, arguments.of_study):
        parser.error(f"two studies, {arguments.of_study} and {arguments.study}; name one")
    arguments.study = arguments.of_study or arguments.study or configuration.settings().get("study")
    if arguments.study is None:
        arguments.study, _ = configuration.study_of(arguments.machine)
    return arguments


def check_machine(machine: str, results_dir: str) -> None:
    """Raise `StudyError` for a machine that has neither results nor a file in config/machines."""
    known = configuration.files("machines")
    if machine not in known and not (machine and Path(results_dir, machine, "runs").is_dir()):
        if why := configuration.not_read("machines", machine):
            raise StudyError(f"--machine: {why}")
        raise StudyError(
            f"--machine: there is no machine '{machine}' in config/machines and no {results_dir}/{machine}/runs"
            f"{checked.nearest(machine, known)}"
        )


def how_to_run(study: str, machine: str) -> str:
    """The command that makes a study's results on a machine; raises `StudyError` if there is no such study."""
    configuration.check_name("studies", study)
    if machine == "local":
        return f"study run {study}"
    return f"study run {study} --machine {machine}, with a batch system also --profile and its folder in profiles"


def folder(text: str) -> str:
    """Of an argument of argparse: the path of a folder, which is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must be a folder")
    return text
