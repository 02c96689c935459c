"""The checks of a run: each failed one fails the run, or empties the columns that it concerns."""

import json
import shutil

import pytest
from examples import expand

from study.core.files import sha256, write_json
from study.records import checks
from study.records.checks import CHECKS, FAILED, NOT_MADE, PASSED, Evidence
from study.records.record import make_record, read_record
from study.records.tidy import runs_frame

KEYS = {"scaling": "weak", "epochs": 4, "sharding": "by_rank", "trace": True}
FOUND = {"n1": {"host": "n1", "device": "gpu", "why": "doubtful", "counter_j": 1.0, "trapezoid_j": 9.0,
                "disagreement_pct": 89.0}}  # fmt: skip
PART = {"energy_j": 50.0, "trapezoid_j": 50.0, "one_hz_j": 50.0, "gap_s": 0.0, "reason": None, "doubtful": None}


def ranks_differ(files):
    files["metrics"]["ranks"][1]["final_weights_crc32"] = 8


def not_averaged(files):
    files["metrics"]["ranks"][1]["gradients_averaged"] = False


def not_finite(files):
    files["metrics"]["ranks"][0]["weights_finite"] = False


def rows_missing(files):
    files["provenance"]["data"]["train"]["shape"] = [100, 61]
    files["metrics"]["ranks"][1]["rows_loaded"] = {"train": 99}


def gpu_shared(files):
    """Four ranks on a node whose job shows one GPU: each takes the only one that it sees."""
    for rank in files["metrics"]["ranks"]:
        rank["gpu"] = "GPU-a"


def steered(files):
    files["provenance"]["isolation"] = ["PYTHONPATH is set"]


def doubtful(record):
    """A sensor's energy that was kept although it is doubtful."""
    record["power"]["components"]["gpu"] = {**PART, "doubtful": [FOUND["n1"]]}
    record["power"] |= {"power_per_gpu_w": 5.0, "energy_per_gpu_j": 50.0}


def restored_otherwise(record):
    record["checkpoints"] = {"number": 2, "write_s": 1.0, "file_mb": 1.0, "state_mb": 1.0, "restore_s": 1.0,
                             "restored_loss_error": 0.3}  # fmt: skip


def events_lost(record):
    record["communication"]["dropped_events"] = record["communication"]["events"]


# How each check comes to fail: by a file of the run, or by what the record has of others.
IN_FILES = {"ranks_agree": ranks_differ, "gradients_averaged": not_averaged, "weights_finite": not_finite,
            "data_complete": rows_missing, "own_gpus": gpu_shared, "isolated": steered}  # fmt: skip
IN_RECORD = {"sensors_plausible": doubtful, "checkpoints_restore": restored_otherwise,
             "timeline_complete": events_lost}  # fmt: skip


@pytest.fixture
def recorded(make_run, tmp_path):
    """(record, row of runs.csv) of a run whose files, and then its record, are changed as a function says."""

    def build(change=None, change_record=None):
        (run,) = expand(**KEYS)
        shutil.rmtree(tmp_path / "local", ignore_errors=True)
        folder = make_run(run)
        files = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("metrics", "provenance")}
        if change:
            change(files)
        outcome = json.loads((folder / "outcome.json").read_text())
        for name, content in files.items():
            write_json(folder / f"{name}.json", content)
            outcome["files"][f"{name}.json"] = sha256(folder / f"{name}.json")
        write_json(folder / "outcome.json", outcome)
        record = make_record(folder)
        if change_record:
            change_record(record)
            record = checks.add_check_results(record, Evidence(record, files["metrics"], files["provenance"]))
        write_json(folder / "record.json", record)
        (row,) = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").to_dict("records")
        return read_record(folder / "record.json"), row

    return build


@pytest.mark.parametrize("name", [*IN_FILES, *IN_RECORD])
def test_a_failed_check_has_a_consequence(recorded, monkeypatch, name):
    """The run fails with kind and message; or columns that would have values are empty, and say why."""
    in_files, in_record = IN_FILES.get(name), IN_RECORD.get(name)
    _, good = recorded()
    record, row = recorded(in_files, in_record)
    assert record["checks"][name] == FAILED
    assert row["checks"].startswith(f"{name} failed ({record['check_reasons'][name]})")
    if CHECKS[name].columns is None:
        assert (good["status"], row["status"], row["failure_kind"]) == ("ok", "failed", "check")
        assert row["failure_message"].startswith(f"{name}: ")
        assert "\n" not in row["failure_message"]
        empty = ("accuracy", "test_loss", "time_per_epoch_s", "throughput_samples_per_s", "peak_memory_mb")
    else:
        empty = CHECKS[name].columns(record)
        assert row["status"] == "ok"
        with monkeypatch.context() as patched:
            patched.setattr(checks, "list_emptied_columns", lambda record: [])
            good = recorded(in_files, in_record)[1]
    assert any(good[column] is not None for column in empty), "no value is lost"
    assert {column: row[column] for column in empty} == dict.fromkeys(empty)


def test_a_run_that_passes_keeps_its_values(recorded):
    def told(files):
        files["provenance"]["data"]["train"]["shape"] = [100, 61]
        files["provenance"]["isolation"] = []
        for number, rank in enumerate(files["metrics"]["ranks"]):
            rank |= {"gradients_averaged": True, "weights_finite": True, "rows_loaded": {"train": 100}}
            rank["gpu"] = f"GPU-{number}"

    record, row = recorded(told)
    assert {name for name, found in record["checks"].items() if found == PASSED} >= {*IN_FILES}
    assert record["checks"]["checkpoints_restore"] == NOT_MADE
    assert (row["status"], row["accuracy"]) == ("ok", 0.9)
    assert row["checks"].startswith("ranks_agree passed; ")


def test_a_record_of_before_the_checks_is_judged_by_what_it_holds(recorded):
    """Finished runs stay valid, but one whose ranks disagree no longer counts."""

    def disagree(record):
        record["model"]["ranks_agree"] = False

    record, row = recorded(change_record=disagree)
    assert (record["status"], row["status"], row["failure_kind"]) == ("failed", "failed", "check")
    assert row["accuracy"] is None
    record, row = recorded(change_record=lambda record: None)
    assert (record["status"], record["checks"]["weights_finite"]) == ("ok", NOT_MADE)


def test_ranks_of_a_command_share_a_gpu_only_where_its_processes_were_on_it():
    """Its GPUs follow from a convention; there is no energy where nothing confirms it."""

    def reason(joules):
        record = {"power": {"components": {"gpu": {"energy_j": joules}}}}
        metrics = {"ranks": [{"gpu": "GPU-a"}, {"gpu": "GPU-a"}], "program": {}}
        return CHECKS["own_gpus"].reason(checks.Evidence(record, metrics))

    assert reason(None) == NOT_MADE
    assert reason(5.0).startswith("2 ranks trained on GPU-a")
