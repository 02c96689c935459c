"""The fixture by which tests make the directories of runs."""

from functools import partial

import pytest
import run_files


@pytest.fixture
def make_run(tmp_path):
    """Make the directory of one run: ``make_run(run, status="ok", times=[1.0], ...)``; see `run_files.make_run`."""
    return partial(run_files.make_run, tmp_path)
