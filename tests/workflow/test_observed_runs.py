"""Traced, profiled and sampled runs on real ranks: what the timeline shows of uneven loading, where a profile ends up,
and that modelled power says so.
"""

import gzip
import json

import pandas as pd
import pytest
from project import Project, copy_tree

OBSERVED = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
  wide: {benchmark: nt3, source: synthetic, train_samples: 20, test_samples: 10, features: 3000, seed: 1}
runs:
  - {benchmark: nt3, dataset: wide, scaling: weak, epochs: 2, gpus: 2, batch_size: 10, sharding: by_rank,
     loader: [read_csv, npy], trace: true, straggler_loads: 30}
  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 2, loader: chunked, profile: true}
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: npy}
tables: [communication, sc18_table2_3, scaling]
figures: [icpp2019_figure7_12_19]
"""


pytestmark = pytest.mark.timed  # two tests are about seconds of these runs, which all the others read


@pytest.fixture(scope="module")
def observed(finished, tmp_path_factory):
    """A copy of the finished study with the observed runs, of the same data. The machine's sensors are not asked."""
    project = Project(tmp_path_factory.mktemp("observed") / "project")
    copy_tree(finished.root, project.root)
    sensors = "power_sensors: [nvml, rapl]"
    project.change("config/machines/local.yaml", sensors, "power_sensors: []\npower_model: {idle_w: 40, peak_w: 140}")
    project.add_study("observed", OBSERVED)
    tables = [f"tables/{name}.csv" for name in ("communication", "sc18_table2_3", "scaling")]
    project.make("runs.csv", *tables, "figures/icpp2019_figure7_12_19.svg", study="observed")
    return project


def test_slow_uneven_loading_makes_the_broadcast_wait_and_fast_loading_hardly(observed):
    """icpp2019, sections 4.2.1 and 5.1: what the ranks load longer, they are late for the broadcast."""
    table = pd.read_csv(observed.made / "tables" / "communication.csv").set_index("loader")
    slow, fast = table.loc["read_csv"], table.loc["npy"]
    assert slow.timeline_broadcast_skew_s > 2 * fast.timeline_broadcast_skew_s
    later = slow.load_s - slow.load_fastest_s
    assert slow.timeline_broadcast_skew_s == pytest.approx(later, abs=0.5 * later + 0.3)
    assert slow.timeline_broadcast_transfer_s < 0.5 * slow.timeline_broadcast_span_s


def test_communication_is_whole(observed):
    runs = pd.read_csv(observed.made / "runs.csv")
    traced = runs[runs.trace]
    assert (traced.status == "ok").all()
    assert not traced.timeline_lost.any()
    for record in traced.record:
        found = json.loads((observed.results / record).read_text())["communication"]
        assert len(found["allreduce_epochs"]) == 2
        assert all(epoch["transfer_s"] > 0 for epoch in found["allreduce_epochs"])
        by_epoch = sum(epoch["transfer_s"] for epoch in found["allreduce_epochs"])
        assert by_epoch == pytest.approx(found["allreduce"]["transfer_s"])  # training communicates within epochs only
        # One step an epoch, a gradient for each of the ten weights and biases; every negotiation tells its ranks.
        assert found["allreduce_tensors"] == 2 * 10
        assert found["negotiations_with_ranks"] >= found["allreduce_tensors"]


def test_the_kept_trace_is_json_that_a_viewer_opens(observed):
    for path in observed.results.glob("runs/*/*/*trace~true*/timeline.json.gz"):
        with gzip.open(path) as handle:
            events = json.load(handle)
        assert {"B", "E", "M", "X"} <= {event["ph"] for event in events}


def test_the_figure_shows_both_loaders_on_one_clock(observed):
    figure = (observed.made / "figures" / "icpp2019_figure7_12_19.svg").read_text()
    assert "read_csv (base), last rank loads 31 times" in figure
    assert "npy (converted), last rank loads 31 times" in figure
    for record in pd.read_csv(observed.made / "runs.csv").query("trace").record:
        activity = pd.read_csv((observed.results / record).with_name("activity.csv"))
        outcome = json.loads((observed.results / record).with_name("outcome.json").read_text())
        seconds = (activity.wall_ns - outcome["started_wall_ns"]) / 1e9
        assert seconds.between(0, outcome["runtime_s"]).all()
        phases = [json.loads(line) for line in (observed.results / record).with_name("phases.jsonl").open()]
        begin, end = (
            (
                f(e["wall_ns"] for e in phases if (e["phase"], e["edge"]) == ("broadcast", edge))
                - outcome["started_wall_ns"]
            )
            / 1e9
            for f, edge in ((min, "begin"), (max, "end"))
        )
        busy = seconds[activity.broadcast_transfer > 0]
        assert busy.between(begin - 0.1, end + 0.1).all()  # two clocks that must agree


def test_a_profile_becomes_a_row_of_sc18_s_table(observed):
    row = pd.read_csv(observed.made / "tables" / "sc18_table2_3.csv").iloc[0]
    assert 0 < row.method_read_s < row.model_fit_s < row.total_s
    assert 0 < row.broadcast_s <= row.horovod_callbacks_s < row.total_s
    assert 0 < row.allreduce_s <= row.distributed_optimizer_s < row.model_fit_s
    assert 0 < row.tensorflow_s < row.total_s
    run = pd.read_csv(observed.made / "runs.csv").query("profile").iloc[0]
    assert row.total_s < run.runtime_s
    record = json.loads((observed.results / run.record).read_text())
    assert record["profile"]["top"][0]["own_s"] > 0


def test_modelled_power_is_labelled_all_the_way(observed):
    """From the sampler beside real ranks to the table."""
    (run,) = pd.read_csv(observed.made / "runs.csv").query("not trace and not profile").itertuples()
    assert run.power_source == "modelled", run.power_reason
    assert 40 <= run.power_per_gpu_w * run.gpus <= 140
    load_to_end = run.load_s + run.preprocess_s + run.broadcast_s + run.train_s + run.evaluate_s
    assert run.energy_per_gpu_j * run.gpus > 40 * 0.8 * load_to_end
    telemetry = pd.read_csv((observed.results / run.record).with_name("telemetry.csv"))
    assert set(telemetry.sensor) == {"modelled"}
    five_readings_s = telemetry.monotonic_ns.diff(5).median() / 1e9  # each is at a random moment of its tenth
    assert 5 / five_readings_s == pytest.approx(10, rel=0.2)
    assert "power and energy are modelled" in (observed.made / "tables" / "scaling.md").read_text()


def test_reading_the_timeline_again_trains_nothing(observed):
    """The analysis is a step of its own: new code for it reads the kept timelines again."""
    observed.change("scripts/study/instruments/timeline.py", "FIRST_BIN_US = 1000.0", "FIRST_BIN_US = 2000.0")
    plan = observed.plan(study="observed")
    assert plan["update_records"] == 1
    assert "train" not in plan
