"""What the scripts that a reader calls for a study have in common."""

import argparse

from study.core import configuration


def of_a_study() -> argparse.ArgumentParser:
    """A parent parser with the study, the machine and the results' folder, by default those of config/config.yaml."""
    config = configuration.settings()
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--study", default=config["study"], help="by default as in config/config.yaml")
    parser.add_argument("--machine", default=config["machine"], help="by default as in config/config.yaml")
    parser.add_argument("--results-dir", default=config["results_dir"], help="by default as in config/config.yaml")
    return parser
