"""A record says what the run's files say, and is not made from files that changed since."""

import copy
import json

import pandas as pd
import pytest
from damage import places
from examples import expand
from run_files import resealed

from study.compare import likeness
from study.core import validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment import inputs
from study.experiment.definition import RunDefinition
from study.records import overlap
from study.records.record import _fits, _traffic, make_record, read_record, schema
from study.records.tidy import runs_frame


def test_a_good_run(make_run):
    (run,) = expand()
    record = make_record(make_run(run, times=[3.0, 1.0]))
    assert record["status"] == "ok"
    assert record["training"]["time_per_epoch_s"] == pytest.approx(2.0)
    assert record["training"]["time_per_epoch_steady_s"] == pytest.approx(1.0)
    # 100 samples x 2 ranks x 2 epochs in 4 s
    assert record["training"]["throughput_samples_per_s"] == pytest.approx(100.0)
    assert record["phases"]["load"] == {"slowest_s": 3.0, "fastest_s": 2.0, "rank_0_s": 2.0}
    assert record["memory"]["peak_memory_mb"] == 101.0
    assert record["quality"]["test_accuracy"] == 0.75
    assert record["reading"] == {"shared": 10.0, **dict.fromkeys(("storage", "staged", "node", "node_storage"))}
    assert record["power"]["power_per_gpu_w"] is None
    assert "no power sensor" in record["power"]["reason"]
    assert {"metrics.json", "history.csv", "run.yaml"} <= set(record["files"])


def test_a_run_that_diverged_is_good_and_has_no_loss(make_run):
    """NaN is a result of training, not a fault of the run; JSON has no word for it."""
    (run,) = expand()
    record = make_record(make_run(run, loss=float("nan")))
    assert record["status"] == "ok"
    assert record["quality"]["loss"] is None
    assert record["quality"]["test_loss"] is None
    assert record["quality"]["accuracy"] == 0.9


def test_what_was_trained_on(make_run):
    (run,) = expand(sharding="by_rank")
    record = make_record(make_run(run, times=[3.0, 1.0]))
    assert record["workload"] == {
        "train_samples": 100, "test_samples": 20, "features": 60, "samples_per_rank": 50}  # fmt: skip
    assert record["training"]["throughput_samples_per_s"] == pytest.approx(50.0)
    assert record["benchmark"] == {"learning_rate": 0.001, "optimizer": "sgd", "loss": "categorical_crossentropy"}
    assert record["data_mb"] == {"train": 5.0, "test": 5.0}


def test_how_steps_vary(make_run, tmp_path):
    (run,) = expand(scaling="weak", epochs=80)
    folder = make_run(run)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["ranks"][0]["step_times"] = {"median_s": 0.01, "p95_s": 0.03, "jitter": 0.2}
    write_json(folder / "metrics.json", metrics)
    resealed(folder, "metrics.json")
    write_json(folder / "record.json", make_record(folder))
    (row,) = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").to_dict("records")
    assert [row[f"step_time_{name}"] for name in ("median_s", "p95_s", "jitter")] == [0.01, 0.03, 0.2]


def test_one_epoch_has_no_steady_time(make_run):
    (run,) = expand(epochs=2)
    assert make_record(make_run(run))["training"]["time_per_epoch_steady_s"] is None


def test_a_failed_run_is_a_record_too(make_run):
    (run,) = expand()
    record = make_record(make_run(run, status="failed"))
    assert (record["status"], record["failure"]["kind"]) == ("failed", "oom")
    assert record["training"] is record["workload"] is None
    assert record["phases"]["load"]["slowest_s"] == 3.0


@pytest.mark.parametrize(("on", "at_once"), [(("c1", "c2"), False), (("c1", "c1"), True)])
def test_jobs_of_one_batch_node_are_beside_each_other_on_a_compute_node_only(make_recorded, tmp_path, on, at_once):
    """The batch node n1 launches two jobs of 20 s, one second apart; the compute nodes are those of the ranks."""
    runs = expand(gpus=1, repeats=2)
    for place, (run, host) in enumerate(zip(runs, on, strict=True)):
        make_recorded(run, machine="summit", started=10**15 + place * 10**9, host=host)
    frame = runs_frame(runs, {"nt3": "c0de"}, tmp_path / "summit")
    assert (frame["host"].tolist(), frame["hosts"].tolist()) == (["n1", "n1"], list(on))
    assert frame["hosts_reason"].isna().all() and frame["hardware"].isna().all(), "the batch node's is not theirs"
    assert frame["overlapped"].tolist() == [at_once, at_once]
    arms = [frame.iloc[[place]].assign(block=1).set_index("block") for place in (0, 1)]
    (why,) = likeness.explain_left_out_blocks(arms).values()
    assert why == f"its block has {overlap.AT_ONCE if at_once else likeness.HOSTS}"


@pytest.mark.parametrize(("gpus", "oversubscribed"), [(2, False), (4, True)])
def test_more_ranks_than_cores_are_told(make_run, gpus, oversubscribed):
    (run,) = expand(gpus=gpus)
    assert make_record(make_run(run))["provenance"]["oversubscribed"] is oversubscribed


def test_a_changed_or_missing_file_is_refused(make_run):
    (run,) = expand()
    folder = make_run(run)
    (folder / "history.csv").write_text("epoch,time_s\n1,0.001\n")
    with pytest.raises(StudyError, match="history.csv: was changed after the run"):
        make_record(folder)
    (folder / "history.csv").unlink()
    with pytest.raises(StudyError, match="history.csv: is missing"):
        make_record(folder)


def test_reading_back(make_run, tmp_path):
    (run,) = expand()
    record = make_record(make_run(run))
    write_json(tmp_path / "record.json", record)
    assert read_record(tmp_path / "record.json") == json.loads(json.dumps(record))
    write_json(tmp_path / "record.json", {**record, "schema_version": 0})
    with pytest.raises(StudyError, match="a record of schema version 0"):
        read_record(tmp_path / "record.json")
    write_json(tmp_path / "record.json", {**record, "runtime": 1})
    with pytest.raises(StudyError, match="runtime: unknown key"):
        read_record(tmp_path / "record.json")
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(StudyError, match="not valid JSON"):
        read_record(tmp_path / "record.json")


def test_grid_keys_that_a_record_is_older_than_have_their_defaults(make_run, tmp_path):
    (run,) = expand()
    record = make_record(make_run(run))
    for name in ("emulated_ranks", "checkpoint_epochs"):
        del record["parameters"][name]
    write_json(tmp_path / "record.json", record)
    found = read_record(tmp_path / "record.json")
    assert (found["parameters"]["emulated_ranks"], found["parameters"]["checkpoint_epochs"]) == (1, 0)


SPOILED = (None, True, -1, 1.5, "ok", {})


def put(value, path, change):
    if not path:
        return change
    made = copy.copy(value)
    made[path[0]] = put(made[path[0]], path[1:], change)
    return made


@pytest.mark.slow
def test_the_compiled_schema_accepts_what_the_schema_accepts_and_nothing_else(make_run):
    validator, fits = validation.VALIDATOR(schema()), _fits()
    for changes in ({}, {"trace": True}):
        (run,) = expand(**changes)
        good = make_record(make_run(run))
        assert fits(good)
        for path in places(good if not run["trace"] else {"communication": good["communication"]}):
            spoiled = [put(good, path, each) for each in SPOILED]
            if path:
                spoiled.append(put(good, path[:-1], _without(_at(good, path[:-1]), path[-1])))
            for each in spoiled:
                assert fits(each) == validator.is_valid(each), path


def _at(value, path):
    return _at(value[path[0]], path[1:]) if path else value


def _without(value, key):
    if isinstance(value, list):
        return [each for index, each in enumerate(value) if index != key]
    return {name: each for name, each in value.items() if name != key} | {"unknown": 1}


MEMBER = dict.fromkeys(
    ("begun_monotonic_ns", "ended_monotonic_ns", "parameters", "epochs_s", "samples_preprocessed", "received_bytes",
     "cpu_s", "preprocessing_cpu_s", "communication_cpu_s", "memory_bytes", "learning_rate", "epochs", "seed"), 1
) | {"affinity": [0], "benchmark": "nt3"}  # fmt: skip


@pytest.fixture
def ensemble_of(make_run):
    """The folder of an ensemble of two epochs, of 3 s and 1 s: ``ensemble_of(of each rank: of its member, ...)``."""

    def build(*ranks, **keys):
        (run,) = expand(scaling="weak", epochs=2, gpus=len(ranks), ensemble=len(ranks), learning_rate_scaling="none",
                        **keys)  # fmt: skip
        folder = make_run(run, times=[3.0, 1.0])
        metrics = json.loads((folder / "metrics.json").read_text())
        for number, (rank, (of_rank, of_member)) in enumerate(zip(metrics["ranks"], ranks, strict=True)):
            rank |= {"final_weights_crc32": 7 + number, "host": "n1"} | of_rank
            rank["member"] = MEMBER | {"number": number, "batch_size": 10, "epochs_s": 4.0} | of_member
        write_json(folder / "metrics.json", {"trainable_parameters": 9} | metrics)
        resealed(folder, "metrics.json")
        return folder

    return build


def test_steps_and_weights_of_an_ensemble_are_those_of_its_first_member(ensemble_of):
    """Which has a batch size of its own; samples are those of all members."""
    folder = ensemble_of(({}, {"batch_size": 25}), ({}, {"batch_size": 40}))
    record = make_record(folder)
    training, model = record["training"], record["model"]
    assert (training["steps_per_epoch"], training["time_per_step_s"]) == (4, 0.25), "100 samples, 25 in a batch"
    assert training["throughput_samples_per_s"] == pytest.approx(2 * 100 * 2 / 4), "of two members"
    assert model["final_weights_crc32"] == 7


def test_what_the_members_of_an_ensemble_did_adds_up_and_what_they_waited_is_a_mean(ensemble_of):
    first = {
        "samples_preprocessed": 30,
        "received_bytes": 2_000_000,
        "memory_bytes": 3_000_000,
        "cpu_s": 5.0,
        "input_stall_s": 1.0,
    }
    second = {
        "samples_preprocessed": 10,
        "received_bytes": 6_000_000,
        "memory_bytes": 1_000_000,
        "cpu_s": 2.0,
        "input_stall_s": 4.0,
    }
    told = make_record(ensemble_of(({}, first), ({}, second)))["ensemble"]
    assert [told[name] for name in ("samples_preprocessed", "shared_mb", "data_memory_mb", "ranks_cpu_s")] == [
        40,
        8,
        4,
        7,
    ]
    assert told["input_stall_s"] == 2.5


@pytest.mark.parametrize("order", [1, -1])
def test_members_of_an_ensemble_count_until_the_last_has_trained(ensemble_of, order):
    """100 samples an epoch, 400 in the 100 s of the slower member; 1 MB per epoch in 10 steps, and in 2."""
    sent = {"tcp_sent_bytes": 1e6, "tcp_received_bytes": 2e6, "cpu_busy": 0.5}
    members = [{"epochs_s": 10.0}, {"epochs_s": 100.0, "batch_size": 50}][::order]
    record = make_record(ensemble_of(*((sent, member) for member in members)))
    assert record["training"]["throughput_samples_per_s"] == pytest.approx(4)
    assert record["traffic"]["tcp_sent_mb_per_step"] == pytest.approx((0.1 + 0.5) / 2)
    assert record["traffic"]["tcp_received_mb_per_step"] == pytest.approx((0.2 + 1.0) / 2)


def test_sparse_gradients_have_no_size(make_run):
    """Horovod gathers the rows that a batch used: no multiple of the parameters."""
    (run,) = expand(scaling="weak", epochs=1, gpus=2)
    folder = make_run(run)
    content = json.loads((folder / "metrics.json").read_text())
    sizes, content["trainable_parameters"] = [], 1000
    for found in (False, True):
        for rank in content["ranks"]:
            rank |= {"tcp_sent_bytes": 1e6, "tcp_received_bytes": 1e6, "cpu_busy": 0.5, "sparse_gradients": found}
        sizes.append(_traffic(RunDefinition.read(folder / "run.yaml", inputs.from_param), content)["gradient_mb"])
    assert sizes == [pytest.approx(0.004), None]


@pytest.mark.parametrize("set_s", [0, -30])
def test_allreduces_by_epoch_need_a_clock_that_was_not_set(make_recorded, tmp_path, set_s):
    (run,) = expand(trace=True)
    edges = [("train", "begin", 0, -0.5), ("train", "end", 0, 4.5)]
    make_recorded(run, more_edges=edges, clock_set_s=set_s)
    row = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0]
    assert pd.isna(row.allreduce_operation_s) == (set_s != 0)
    assert row.allreduce_operations > 0 and row.timeline_broadcast_span_s > 0


def test_the_bytes_that_a_resumed_run_has_read_are_those_of_its_last_piece(make_recorded, tmp_path):
    (run,) = expand()
    make_recorded(run, resumed=1)
    assert pd.isna(runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0].shared_read_mb)
