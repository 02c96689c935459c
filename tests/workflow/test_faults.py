"""The quick half of ``make faults``: real runs and files with something wrong, each ending as expected.

And that the others can be tried in several parts, on a slowed machine too, with a page that lists what is there.
"""

import data_faults
import faults_page
import pytest
from catalogue import FAULTS
from place import Place, make_data
from project import ROOT


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(str(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Where the faults that need no more than a run that ended well keep one."""
    return tmp_path_factory.mktemp("good") / "run"


# The others are long.
EACH_TIME = (
    "a generated file is changed before its conversion",
    "the disk is full while a dataset is converted",
    "a rank is killed in training",
    "a run's history is changed after the run",
    "the launching process of a run on several hosts is killed",
    "a diverging training, with PyTorch",
)


def quick_faults():
    """The parameters of the faults that tests try: those that are neither in `EACH_TIME` nor short are long."""
    for name, fault in FAULTS.items():
        is_short = name in EACH_TIME
        if fault.quick:
            yield pytest.param(name, marks=() if is_short else pytest.mark.long)


def test_the_faults_of_each_time_are_tried():
    assert set(EACH_TIME) <= {each.values[0] for each in quick_faults() if not each.marks}


@pytest.mark.parametrize("name", [*quick_faults()])
def test_quick_fault(name, data, good, tmp_path):
    try:
        FAULTS[name].function(Place(tmp_path, data, good))
    except data_faults.NotHere as error:
        pytest.skip(str(error))


@pytest.fixture
def performance(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "performance"))
    import commits
    import faults

    return faults, commits


def test_the_page_of_faults_is_current(performance):
    faults, _ = performance
    written = faults.PAGE.read_text()
    assert written == faults_page.page(FAULTS, faults.read_rows(faults.TABLE)), "make faults ONLY=NAME writes it anew"
