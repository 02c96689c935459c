"""Where everything lies: the repository, its configuration, a machine's results. Rules and scripts both ask here."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
CONFIG = ROOT / "config"


def published(root):
    """The published values' files, relative to where Snakemake runs, so that a moved repository is the same one."""
    return sorted(os.path.relpath(file) for file in (Path(root) / "config" / "published").glob("*.csv"))


def run_folder(folder, directory):
    """A run's directory. folder: ``results/<machine>``; directory: from `study.experiment.grid.run_directory`."""
    return f"{folder}/runs/{directory}"


def record(folder, directory):
    """A run's record."""
    return f"{run_folder(folder, directory)}/record.json"


def loading(folder, dataset):
    """The loading measurement of a dataset."""
    return f"{folder}/loading/benchmark~{dataset.benchmark}/dataset~{dataset.id}/loading.json"
