"""The quick half of ``make faults``: real runs, files and downloads with something wrong, each ending as expected."""

import artefact_faults  # noqa: F401  these register their faults
import data_faults
import download_faults  # noqa: F401
import host_faults  # noqa: F401
import network_faults  # noqa: F401
import pytest
import run_faults  # noqa: F401
import workflow_faults  # noqa: F401
from place import Place, make_data
from registry import FAULTS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(str(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS.values() if fault.quick])
def test_quick_fault(name, data, tmp_path):
    try:
        FAULTS[name].function(Place(tmp_path, data))
    except data_faults.NotHere as error:
        pytest.skip(str(error))


def test_there_are_enough_of_them():
    assert len(FAULTS) >= 40
    assert all(fault.truth for fault in FAULTS.values())
