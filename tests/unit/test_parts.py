"""The parts of ``make test-long``: every long test is in exactly one of them, and what has no time left is listed."""

import datetime
import subprocess
import sys

import parts
import pytest

from study.core.paths import ROOT

DIVIDED = parts.divided({"a.py": 50, "b.py::test_one": 30, "b.py": 40})


def long_tests(config):
    """Their node ids: as this session has collected them, or else from the files that name the mark.

    To import all others takes 30 CPU seconds.
    """
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.long" in path.read_text())
    collected = config.stash[parts.COLLECTED]
    if {str(path.relative_to(ROOT)) for path in files} <= set(collected):
        return [test for tests in collected.values() for test in tests]
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "long", "-p", "no:cacheprovider", *files]
    listed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stdout[-2000:] + listed.stderr[-2000:]
    return [line for line in listed.stdout.splitlines() if "::" in line]


def test_a_test_is_in_the_part_of_its_own_row_or_of_its_file_s():
    assert DIVIDED == {"a.py": 1, "b.py": 2, "b.py::test_one": 3}
    assert parts.part_of("a.py::test_x[1]", DIVIDED) == 1
    assert parts.part_of("b.py::test_two", DIVIDED) == 2
    assert parts.part_of("b.py::test_one[p::q]", DIVIDED) == 3


@pytest.mark.slow
def test_no_long_test_is_lost_and_each_row_has_a_test(pytestconfig):
    seconds, tests = parts.durations(), long_tests(pytestconfig)
    assert tests
    assert set(seconds) == {parts.row_of(test, seconds) for test in tests} - {None}
    divided = parts.divided(seconds)
    assert {parts.part_of(test, divided) for test in tests} == set(range(1, parts.PARTS + 1))
    totals = [sum(seconds[row] for row in seconds if divided[row] == part) for part in range(1, parts.PARTS + 1)]
    assert max(totals) < 15 * 60
    assert max(totals) < 1.5 * min(totals)


def test_a_part_is_a_number_or_that_of_the_weekday():
    thursday = datetime.date(2026, 11, 26)
    assert parts.chosen("today", thursday) == 4
    assert parts.DAYS[parts.chosen("today", thursday) - 1] == "Thursday"
    assert (parts.chosen("7"), parts.chosen("all")) == (7, None)
    for wrong in ("0", "8", "-1", "monday", ""):
        with pytest.raises(ValueError, match="is not a number from 1 to 7"):
            parts.chosen(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_what_there_is_no_time_for_is_listed_and_is_no_pass(tmp_path, workers):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import time\ndef test_a(): time.sleep(3)\ndef test_b(): pass\ndef test_c(): pass\n"
    )
    line = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "loadfile", "--minutes", 0.03, "-o", "addopts="]
    environment = {"PYTHONPATH": str(ROOT / "tests"), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([*map(str, line), tmp_path], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 tests were not run, as no time was left" in done.stdout
    assert "1 passed" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("test_it.py::")][-2:] == [
        "test_it.py::test_b", "test_it.py::test_c"
    ]  # fmt: skip


def test_the_files_that_begin_first_are_there(tmp_path):
    """Else a file that was renamed would begin last, and one worker would end long after the others."""
    assert [file for file in parts.durations(parts.FILES) if not (ROOT / file).exists()] == []
    parts.store({"a.py": 7.2, "b.py": 0.5, "c.py": 30}, tmp_path / "durations.csv")
    assert parts.durations(tmp_path / "durations.csv") == {"c.py": 30, "a.py": 7}
