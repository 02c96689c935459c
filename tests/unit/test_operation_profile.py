"""Operations of training steps: shares by hand, damaged files, and real steps with an injected sleep and copy."""

import gzip
import importlib.util
import json
import statistics
import time
from dataclasses import replace
from types import SimpleNamespace

import kineto_traces
import pandas as pd
import pytest
from examples import define, expand, make_data
from fake_communicator import FakeCommunicator

from study.backends.tensorflow import operations as of_tensorflow
from study.core.errors import StudyError
from study.experiment.parameters import is_observed
from study.instruments import kineto, operation_times, phases
from study.instruments import operations as operation_profile
from study.instruments.operations import Operation, Profile, Recording, Window, compute_clock_offset
from study.records import tidy
from study.report.figures import operations_drawing
from study.report.figures.description import load_description
from study.report.tables import TABLES
from study.training import loop, rank

BY_HAND = (  # one step of 100 ns
    Operation("outer", "", "main", 0, 60),
    Operation("aten::mm", "compute", "main", 10, 40),
    Operation("gloo:all_reduce", "communication", "gloo", 30, 70),
    Operation("aten::copy_", "copies", "main", 45, 55),
    Operation("aten::mm", "compute", "main", 90, 120),  # of the next step
)


def by_hand(**keys):
    return Profile("by hand", "cpu", ((0, 100),), ((75, 80),), BY_HAND, **keys)


def test_each_moment_counts_once():
    found = operation_times.summarize_profile(by_hand())
    ns = {name.removesuffix("_s"): value * 1e9 for name, value in found.items() if name.endswith("_s") and value}
    expected = {"step": 100, "compute": 40, "copies": 10, "communication": 20, "input_wait": 5, "idle": 25}
    assert {name: round(ns[name]) for name in expected} == expected
    assert ns["communication_all"] == pytest.approx(40) and found["communication_hidden"] == pytest.approx(10 / 40)
    assert found["communication_reason"] is None
    own = {each["operation"]: each["own_s"] * 1e9 for each in found["top"]}
    assert own == pytest.approx({"aten::mm": 40, "gloo:all_reduce": 40, "aten::copy_": 10})


def test_communication_that_is_not_seen_is_empty_with_its_reason():
    silent = tuple(each for each in BY_HAND if each.kind != "communication")
    found = operation_times.summarize_profile(
        replace(by_hand(unseen="Horovod sends from a thread of its own"), operations=silent)
    )
    assert found["communication_s"] is None and found["communication_hidden"] is None
    assert found["communication_reason"] == "Horovod sends from a thread of its own"


def test_a_file_has_what_was_written(tmp_path):
    operation_profile.write_profile(tmp_path / operation_profile.FILE, by_hand())
    assert operation_profile.read_profile(tmp_path / operation_profile.FILE) == by_hand()


def test_a_large_profile_keeps_whole_steps():
    steps = tuple((at, at + 100) for at in range(0, 2000, 100))
    operations = tuple(Operation("aten::mm", "compute", "main", at, at + 5) for at in range(0, 2000, 10))
    kept = Profile("many", "cpu", steps, (), operations).limit_operations(60)
    assert 1 <= len(kept.steps) <= 6 and len(kept.operations) == 10 * len(kept.steps) and kept.dropped == 0
    one = Profile("many", "cpu", steps[:1], (), operations).limit_operations(4)
    assert len(one.operations) == 4 and one.dropped == 6


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"steps": [[0,')],
    ids=["empty", "no gzip", "no keys", "truncated"],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / operation_profile.FILE).write_bytes(content)
    with pytest.raises(StudyError, match="is not a complete profile of operations"):
        operation_times.summarize_file(tmp_path / operation_profile.FILE)


@pytest.mark.parametrize(
    "wrong", [{"steps": []}, {"device": "tpu"}, {"names": [["a", "b", "c"]]}, {"operations": [[9, 0, 0, 1]]}]
)
def test_a_changed_value_is_refused(tmp_path, wrong):
    path = tmp_path / operation_profile.FILE
    operation_profile.write_profile(path, by_hand())
    content = json.loads(gzip.decompress(path.read_bytes())) | wrong
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(StudyError, match="is not a complete profile of operations"):
        operation_profile.read_profile(path)


def test_the_closest_mark_tells_the_clock():
    assert compute_clock_offset([(100, 200), (300, 310)], [5_150, 5_305]) == (5_000, 5)
    with pytest.raises(StudyError, match=r"lost the marks of its clock \(1 of 2\)"):
        compute_clock_offset([(100, 200), (300, 310)], [5_150])


def test_a_gpu_s_step_is_made_of_its_kernels_copies_and_gaps():
    """By a synthetic trace (`kineto_traces`); no GPU was there."""
    seen = kineto.parse_trace(kineto_traces.trace(steps=2))
    assert seen.device == "gpu" and len(seen.marks) == 2
    assert kineto_traces.QUEUE not in {each.name for each in seen.operations}
    step = kineto_traces.STEP_US * 1000
    steps = tuple((mark, mark + step) for mark in seen.marks)
    found = operation_times.summarize_profile(Profile("synthetic", seen.device, steps, (), tuple(seen.operations)))
    us = {name: round(found[f"{name}_s"] * 1e6) for name in ("compute", "copies", "communication", "idle")}
    assert us == {"compute": 50, "copies": 10, "communication": 20, "idle": 20}
    assert found["communication_hidden"] == pytest.approx(1 / 3)


def test_what_is_no_trace_of_kineto_is_refused():
    for wrong in ({}, {"traceEvents": [1]}, {"traceEvents": [{"ph": "X"}]}):
        with pytest.raises(StudyError, match="is no Chrome trace of Kineto"):
            kineto.parse_trace(wrong)


def plane(name, lines):
    """A plane of an XSpace, with what the reader uses of it. lines: {name: [(event, begin us, length us, run)]}."""
    names = sorted({event for events in lines.values() for event, *_ in events})
    made = [
        SimpleNamespace(
            id=number, name=line, timestamp_ns=5_000,
            events=[
                SimpleNamespace(
                    metadata_id=names.index(event), offset_ps=begin * 10**6, duration_ps=length * 10**6,
                    stats=[SimpleNamespace(metadata_id=0, int64_value=run, uint64_value=0)] if run else [],
                )
                for event, begin, length, run in events
            ],
        )
        for number, (line, events) in enumerate(lines.items())
    ]  # fmt: skip
    named = {number: SimpleNamespace(name=name) for number, name in enumerate(names)}
    return SimpleNamespace(name=name, lines=made, event_metadata=named, stat_metadata={0: SimpleNamespace(name="id")})


HOST_LINES = {
    "python": [("study.mark", 0, 1, 0), ("FunctionRun", 1, 2, 7), ("EagerLocalExecute: DeepCopy", 4, 5, 0)],
    "tf_Compute": [
        ("ExecutorState::Process", 10, 40, 7), ("layer/MatMul:_MklMatMul", 11, 20, 0), ("MemoryAllocation", 12, 0, 0),
        ("ExecutorState::Process", 60, 20, 8), ("map/Gather:GatherV2", 61, 10, 0),  # of a run that makes batches
    ],
    "tf_data_iterator_get_next": [("IteratorGetNextOp::DoCompute", 2, 6, 0), ("Iterator::Root", 3, 4, 0)],
}  # fmt: skip


def told(operations):
    return {(each.name, each.kind, each.begin_ns, each.end_ns) for each in operations}


def test_tensorflow_s_host_has_the_operations_of_the_step_s_graph():
    """By a synthetic XSpace; what makes batches meanwhile is work beside the step."""
    device, found, marks = of_tensorflow.extract_operations(SimpleNamespace(planes=[plane("/host:CPU", HOST_LINES)]))
    assert (device, marks) == ("cpu", [5_000])
    assert told(found) == {
        ("DeepCopy", "copies", 9_000, 14_000),
        ("_MklMatMul", "compute", 16_000, 36_000),
        ("GatherV2", "other", 66_000, 76_000),
        ("IteratorGetNext", "input_wait", 7_000, 13_000),
    }
    assert [each.scope for each in found if each.name == "_MklMatMul"] == ["layer/MatMul"]


def test_tensorflow_s_gpu_has_its_streams_and_no_operation_of_the_host():
    """By a synthetic XSpace, recorded nowhere; lines that only repeat the streams do not count."""
    kernels = [("MemcpyH2D", 0, 5, 0), ("sgemm", 5, 20, 0), ("ncclDevKernel_AllReduce", 20, 10, 0)]
    gpu = plane("/device:GPU:0", {"Stream #7(Compute)": kernels, "XLA Ops": [("sgemm", 5, 20, 0)]})
    space = SimpleNamespace(planes=[plane("/host:CPU", HOST_LINES), gpu])
    device, found, _ = of_tensorflow.extract_operations(space)
    assert device == "gpu"
    assert told(found) == {
        ("MemcpyH2D", "copies", 5_000, 10_000),
        ("sgemm", "compute", 10_000, 30_000),
        ("ncclDevKernel_AllReduce", "communication", 25_000, 35_000),
        ("IteratorGetNext", "input_wait", 7_000, 13_000),
    }


class _Silent:
    """A profiler that sees the marks only; it counts how often it was started and stopped."""

    def __init__(self):
        self.calls, self.marks = [], []

    def start(self):
        self.calls.append("start")

    def mark(self):
        self.marks.append(time.monotonic_ns() + 10**9)

    def synchronize(self):
        pass

    def stop(self):
        self.calls.append("stop")

    def collect(self):
        return Recording("silent", "cpu", [], self.marks)


@pytest.mark.parametrize(("steps", "epochs", "number"), [(1, 1, 1), (4, 1, 2), (12, 1, 7), (100, 3, 20)])
def test_the_window_has_its_steps_and_no_others(steps, epochs, number):
    silent = _Silent()
    window = Window(silent, steps, epochs)
    for epoch in range(epochs):
        window.begin_epoch(epoch)
        assert list(window.measure_steps(range(steps))) == list(range(steps))
    found = window.profile()
    assert silent.calls == ["start", "stop"] and len(found.steps) == number == len(found.input_waits)
    assert all(earlier[1] == later[0] for earlier, later in zip(found.steps, found.steps[1:], strict=False))


def test_training_that_ends_early_is_told():
    window = Window(_Silent(), 10, 3)
    window.begin_epoch(0)
    list(window.measure_steps(range(10)))
    with pytest.raises(StudyError, match="training ended before the steps that are profiled"):
        window.profile()


def test_operations_are_runs_of_their_own():
    (run,) = expand(gpus=1, profile="operations")
    assert not is_observed(run, None) and not is_observed(run, "profile") and is_observed(run, "profile: operations")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"trace": True, "gpus": 2}, "cannot be traced and profiled at once"),
        ({"input_pipeline": "keras_arrays"}, "the wait for a batch is not seen"),
        ({"strategy": "parameter_server", "servers": 1, "gpus": 2}, "the chief trains nothing"),
        ({"checkpoint_epochs": 1}, "a traced or profiled run has no checkpoints"),
        ({"emulated_ranks": 2, "gpus": 1}, "the profile of an emulated run"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_the_plan(keys, why):
    with pytest.raises(StudyError, match=why):
        expand(profile="operations", **keys)


def test_table_figure_and_page_tell_what_the_record_tells(make_recorded, tmp_path):
    """Runs by hand of one and two ranks; that of cProfile is not among them."""
    one, two = expand(gpus=[1, 2], profile="operations")
    (other,) = expand(gpus=1, profile=True)
    unseen = replace(by_hand(unseen="it is not seen"), operations=BY_HAND[1:2])
    for run, facts in ((one, {"operations": by_hand()}), (two, {"operations": unseen}), (other, {})):
        make_recorded(run, load=(2.0,) * run.gpus, **facts)
    planned = [one, two, other]
    tidy.runs_frame(planned, {}, tmp_path / "local").to_csv(tmp_path / "runs.csv", index=False)
    runs = tidy.read_runs(tmp_path / "runs.csv")
    assert list(runs["profile"]) == ["operations", "operations", True]

    table = TABLES["operations"].make(runs, pd.DataFrame())
    alone, together = table.frame.to_dict("records")
    assert alone["operations_idle_s"] == pytest.approx(25e-9) and alone["operations_communication_hidden"] == 0.25
    assert together["operations_communication_reason"] == "it is not seen"
    assert any("waiting for it is in the idle time" in note for note in table.notes)

    axes = operations_drawing.draw(operations_drawing.select(load_description("operations"), runs, "test")).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "tensorflow, 1 rank",
        "tensorflow, horovod, 2 ranks",
    ]
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx((100 + 100) / 1e6)
    assert [text.get_text() for text in axes.texts] == ["idle includes communication"]


SLEPT_S, LOADED_S, COPIED = 0.04, 0.03, 8_000_000  # per step: idle, wait for the batch, float32 values that are copied


class Injected:
    """What a test adds to each step; times are measured where it is added."""

    def __init__(self):
        self.begins, self.copies = [], []

    def begin_step(self, original, copy):
        def called(hooks):
            self.begins.append(time.monotonic_ns())
            begun = time.monotonic_ns()
            copy()
            self.copies.append((time.monotonic_ns() - begun) / 1e9)
            original(hooks)

        return called


def injected_by_pytorch(monkeypatch):
    import torch

    from study.backends.pytorch.input import Input

    make_batch, source, target = Input.make_batch, torch.zeros(COPIED), torch.zeros(COPIED)
    monkeypatch.setattr(Input, "make_batch", lambda self, chosen: time.sleep(LOADED_S) or make_batch(self, chosen))
    return lambda: target.copy_(source)


def injected_by_tensorflow(monkeypatch):
    import tensorflow as tf

    from study.backends.tensorflow import devices, steps

    devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process
    prepared, source = steps.prepare_steps, tf.zeros(COPIED)

    def slow(*arguments):
        found = prepared(*arguments)
        late = lambda *batch: tf.numpy_function(lambda x: time.sleep(LOADED_S) or x, batch[:1], tf.float32)  # noqa: E731

        def one(x, y):
            return tf.ensure_shape(late(x), x.shape), y

        found.fit["x"] = found.fit["x"].map(one)
        return found

    monkeypatch.setattr(steps, "prepare_steps", slow)
    return lambda: tf.raw_ops.DeepCopy(x=source)


HAS_TORCH = importlib.util.find_spec("torch") is not None
OF_PYTORCH = {"framework": "pytorch", "strategy": "ddp"}


WITHOUT = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed: make setup WITH=pytorch")


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(
    ("inject", "keys"),
    [
        pytest.param(injected_by_pytorch, OF_PYTORCH, id="pytorch", marks=WITHOUT),
        pytest.param(injected_by_tensorflow, {}, id="keras"),
        pytest.param(injected_by_tensorflow, {"training_loop": "custom"}, id="custom"),
    ],
)
def test_a_sleep_is_idle_a_slow_loader_is_input_wait_and_a_copy_is_a_copy(tmp_path, monkeypatch, inject, keys):
    """In real training; the sums agree with the step's time by another clock reading within 5 %."""
    point = {"benchmark": "p1b2", "epochs": 2, "prefetch_batches": 0, "step_delay_ms": round(SLEPT_S * 1000), **keys}
    (planned,) = expand(gpus=1, loader="npy", scaling="weak", batch_size=10, profile="operations", **point)
    make_data(planned, tmp_path / "data")
    run, here = define(planned, data_dir=str(tmp_path / "data")), Injected()
    monkeypatch.setattr(loop.Loop, "begin_step", here.begin_step(loop.Loop.begin_step, inject(monkeypatch)))
    rank.run_rank(run, tmp_path, phases.now(), lambda with_process_sets: FakeCommunicator())
    seen = operation_profile.read_profile(tmp_path / operation_profile.FILE)
    found = operation_times.summarize_profile(seen)

    window = seen.steps[0][0], seen.steps[-1][1]
    segments = operation_times.split_into_own_segments(seen.operations)
    own = sum(each.end_ns - each.begin_ns for each in operation_times.clip_segments(segments, window)
              if each.operation.kind not in ("", "other", "input_wait")) / 1e9 / found["steps"]  # fmt: skip
    steps = [end - begin for begin, end in zip(here.begins, here.begins[1:], strict=False)][-found["steps"] + 1 :]
    step_s = statistics.mean(steps) / 1e9
    assert own + found["input_wait_s"] + found["idle_s"] == pytest.approx(step_s, rel=0.05)
    assert SLEPT_S <= found["idle_s"] < step_s - LOADED_S, "not what was waited for"
    assert LOADED_S <= found["input_wait_s"] < step_s - SLEPT_S
    assert found["copies_s"] == pytest.approx(statistics.mean(here.copies[-found["steps"] :]), rel=0.3)
    assert found["compute_s"] > 0 and found["device"] == "cpu"
