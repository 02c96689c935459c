"""The fixed computation that is timed beside a run, and where its time is recorded."""

import pytest
from examples import expand
from run_files import resealed

from study.core.files import write_json
from study.instruments import calibration
from study.machines import machine
from study.records.record import make_record
from study.records.tidy import runs_frame


@pytest.mark.slow
def test_every_round_of_every_process_is_timed(monkeypatch):
    monkeypatch.setattr(calibration, "ROUNDS", 2)
    seconds = calibration.time_rounds(2)
    assert len(seconds) == 4
    assert min(seconds) > 0


def test_the_summary_is_the_mean_of_the_medians():
    found = calibration.summarize([1.0, 1.0, 9.0], [2.0, 2.0, 0.1], 1)
    assert found["calibration_s"] == 1.5
    assert found["version"].startswith(f"{calibration.VERSION}, numpy ")


def test_a_run_s_calibration_is_in_its_record_and_row(make_run):
    (run,) = expand(gpus=1)
    folder = make_run(run, load=(2.0,))
    assert make_record(folder)["calibration"] is None
    write_json(folder / calibration.FILE, calibration.summarize([0.2], [0.4], 1))
    resealed(folder, calibration.FILE)
    write_json(folder / "record.json", make_record(folder))
    (row,) = runs_frame([run], {"nt3": "c0de"}, folder.parents[3]).to_dict("records")
    assert row["calibration_s"] == pytest.approx(0.3)
    assert row["calibration_version"] == calibration.make_version()


@pytest.mark.parametrize(("name", "same_host"), [("local", True), ("lab", True), ("summit", False), ("polaris", False)])
def test_it_is_timed_only_where_ranks_run_on_the_launching_host(name, same_host):
    assert machine.is_on_launching_host(machine.load(name)) is same_host
