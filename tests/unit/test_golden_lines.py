"""The lines that a reviewer reads are those that the code makes: tests/clusters/golden.py writes them anew."""

import sys

import pytest

from study.configuration import ROOT

sys.path.insert(0, str(ROOT / "tests" / "clusters"))
import golden


@pytest.mark.parametrize("machine", golden.MACHINES)
def test_submit_and_launcher_lines(machine):
    assert golden.lines_of(machine) == (golden.FOLDER / f"{machine}.txt").read_text()
