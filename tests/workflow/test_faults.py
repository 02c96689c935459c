"""The quick half of ``make faults``: real runs, files and downloads with something wrong, each ending as expected.

And that the others can be tried in several parts, on a slowed machine too, with a page that lists what is there.
"""

import subprocess
import sys
import time

import data_faults
import faults_page
import pandas as pd
import psutil
import pytest
from catalogue import FAULTS
from place import Place, make_data
from project import ROOT, WAIT_S, wait_for

from lab import Freezer

BUSY = "while True: pass"
# A slowed process, which tries to keep one core busy; prints the share of a core that it got, and that it may have.
SLOWED = """
import time
from control_groups import NotHere, slowed
try:
    with slowed(0.1) as cores:
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < 2:
            pass
        print((time.process_time() - used) / (time.monotonic() - began), cores)
except NotHere as error:
    print(error)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(str(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Where the faults that need no more than a run that ended well keep one."""
    return tmp_path_factory.mktemp("good") / "run"


# At least one of each kind. The others are long.
EACH_TIME = (
    "a file cut off in a line",
    "a generated file is changed before its conversion",
    "the disk is full while a dataset is converted",
    "a rank is killed in training",
    "the run's folder is somebody's own",
    "a run's history is changed after the run",
    "a record of an older version",
    "the launching process of a run on several hosts is killed",
    "a diverging training, with PyTorch",
)


def quick_faults():
    """The parameters of the faults that tests try: those that are neither in `EACH_TIME` nor short are long."""
    for name, fault in FAULTS.items():
        is_short = name in EACH_TIME or fault.group in ("configuration", "download")
        if fault.quick:
            yield pytest.param(name, marks=() if is_short else pytest.mark.long)


def test_one_fault_of_each_kind_is_tried_each_time():
    tried = [FAULTS[each.values[0]] for each in quick_faults() if not each.marks]
    assert {fault.group for fault in tried} == {fault.group for fault in FAULTS.values() if fault.quick}
    assert set(EACH_TIME) <= {fault.name for fault in tried}


@pytest.mark.parametrize("name", [*quick_faults()])
def test_quick_fault(name, data, good, tmp_path):
    try:
        FAULTS[name].function(Place(tmp_path, data, good))
    except data_faults.NotHere as error:
        pytest.skip(str(error))


def test_there_are_enough_of_them():
    assert len(FAULTS) >= 100
    assert all(fault.truth for fault in FAULTS.values())


@pytest.fixture
def performance(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "performance"))
    import commits
    import faults

    return faults, commits


def test_the_page_lists_all_faults_and_their_results(performance):
    faults, _ = performance
    written = faults.PAGE.read_text()
    assert written == faults_page.page(FAULTS, faults.read(faults.TABLE)), "make faults ONLY=NAME writes it anew"
    assert [name for name in FAULTS if f"| {name}" not in written] == []


def test_results_are_of_faults_that_there_are_and_counted(performance):
    faults, _ = performance
    table = faults.read(faults.TABLE)
    assert set(table["fault"]) <= set(FAULTS) and set(table["speed"]) <= set(faults_page.SPEEDS)
    assert not table.duplicated(["fault", "speed"]).any()
    (line,) = [line for line in faults.PAGE.read_text().splitlines() if line.startswith("| at full speed |")]
    numbers = [int(cell) for cell in line.strip("|").split("|")[1:5]]
    full = table[table["speed"] == "full"]["outcome"]
    assert numbers[0] == (full == "pass").sum() and sum(numbers) == len(FAULTS)


@pytest.fixture
def repository(performance, tmp_path, monkeypatch):
    """A function that writes a file of a small repository and commits it; returns the commit."""
    _, commits = performance
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)

    def written(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        subprocess.run([*git, "add", name], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", name], check=True)
        return commits.current()

    return written


def test_results_count_until_more_than_results_and_documents_change(performance, repository, tmp_path):
    _, commits = performance
    first = repository("scripts/train.py", "1")
    later = [repository(name, "1") for name in ("docs/page.txt", "README.md", "performance/faults.csv")]
    (tmp_path / "performance" / "faults.csv").write_text("2")
    assert commits.current() == later[-1]
    assert all(commits.is_since(each, commits.last_change()) for each in (first, *later))
    (tmp_path / "scripts" / "train.py").write_text("2")
    assert commits.current() == f"{later[-1]}{commits.CHANGED}" and commits.last_change() == ""
    assert not commits.is_since(commits.current(), first)
    second = repository("scripts/train.py", "2")
    counts = [commits.is_since(each, commits.last_change()) for each in (second, later[-1], first)]
    assert counts == [True, False, False]
    assert commits.is_since(second, first) and not commits.is_since("", first) and not commits.is_since("0000", first)


def row(fault, speed="full", **changes):
    return {"fault": fault.name, "group": fault.group, "must": fault.truth, "speed": speed, "outcome": "pass"} | changes


def test_only_a_fault_that_passed_as_it_is_at_that_speed_is_not_tried_again(performance, repository):
    faults, _ = performance
    commit = repository("scripts/train.py", "1")
    one, other = list(FAULTS.values())[:2]
    rows = faults.with_row(faults.read(ROOT / "nowhere"), row(one, commit=commit))
    assert faults.has_passed(rows, one, "full", commit)
    assert not faults.has_passed(rows, one, "slowed", commit) and not faults.has_passed(rows, other, "full", commit)
    for changes in ({"outcome": "FAIL"}, {"outcome": "skipped"}, {"must": "Something else."}, {"commit": None}):
        rows = faults.with_row(rows, row(one, **({"commit": commit} | changes)))
        assert not faults.has_passed(rows, one, "full", commit)


def test_a_result_takes_the_place_of_the_earlier_one_at_its_speed(performance, tmp_path):
    faults, _ = performance
    one, other = list(FAULTS.values())[:2]
    rows = faults.read(tmp_path / "nowhere")
    for each in (row(other), row(one, "slowed"), row(one), row(one, outcome="FAIL")):
        rows = faults.with_row(rows, each)
    found = [(name, speed, outcome) for name, speed, outcome in rows[["fault", "speed", "outcome"]].values]
    assert found == [(one.name, "full", "FAIL"), (one.name, "slowed", "pass"), (other.name, "full", "pass")]
    rows.to_csv(tmp_path / "faults.csv", index=False)
    pd.testing.assert_frame_equal(faults.read(tmp_path / "faults.csv"), rows, check_dtype=False)


def test_on_a_slowed_machine_processes_get_their_share():
    folders = f"{ROOT}/tests/faults:{ROOT}/tests/workflow:{ROOT}/scripts"
    line = ["env", f"PYTHONPATH={folders}", sys.executable, "-c", SLOWED]
    told = subprocess.run(line, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout
    if not told[0].isdigit():
        pytest.skip(told.strip())
    share, cores = map(float, told.split())
    assert 0 < share < 2 * cores


def test_a_frozen_process_stops_until_it_thaws():
    try:
        freezer = Freezer("faults-test")
    except data_faults.NotHere as error:
        pytest.skip(str(error))
    process = psutil.Popen([sys.executable, "-c", BUSY])
    try:
        with freezer:
            freezer.freeze([process])
            used = process.cpu_times().user
            time.sleep(0.5)
            assert process.cpu_times().user == used
            freezer.thaw()
            wait_for(lambda: process.cpu_times().user > used)
    finally:
        process.kill()
        process.wait()
