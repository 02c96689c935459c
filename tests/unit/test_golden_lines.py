"""The lines that a reviewer reads are those that the code makes: tests/clusters/golden.py writes them anew."""

import golden
import pytest


@pytest.mark.parametrize("machine", golden.MACHINES)
def test_submit_and_launcher_lines(machine):
    assert golden.lines_of(machine) == (golden.FOLDER / f"{machine}.txt").read_text()
