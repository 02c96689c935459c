"""The environment that jobs and ranks are started in."""

import os
import sys
import time
from pathlib import Path

from study.core.paths import ROOT


def search_path():
    """PATH with this Python's own folder first, so that its ``python`` and ``horovodrun`` are the ones found."""
    own = str(Path(sys.executable).parent)
    others = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder and folder != own]
    return os.pathsep.join([own, *others])


def prepare_for_jobs(config):
    """Let jobs call ``python $SCRIPTS/NAME.py``: this Python, unless a conda environment goes before it.

    What was asked for goes along as ``STUDY``, ``MACHINE`` and ``DATA_DIR``: as a rule's params they would make
    Snakemake run everything anew for a study that shares the same runs.
    """
    os.environ["PATH"] = search_path()
    os.environ["SCRIPTS"] = str(ROOT / "scripts")
    for key in ("study", "machine", "data_dir"):
        os.environ[key.upper()] = config[key]
    os.environ["STUDY_SESSION"] = f"{time.time_ns()}.{os.getpid()}"
    if "account" in config:
        os.environ["STUDY_ACCOUNT"] = config["account"]
