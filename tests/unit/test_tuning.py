"""Arms against their baseline: table, figure and tuner, from runs with known numbers."""

import copy
import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest
from examples import STUDY, expand
from scipy import stats

from study.compare import arms, tuner
from study.experiment import expansion
from study.records.tidy import format_arms
from study.report.figures import tuning_drawing
from study.report.figures.description import load_description
from study.report.tables import TABLES
from study.report.tables.tuning import describe_answer, make_tuner_table

RUN = {
    "machine": "local", "memory_mode": "none", "session": "1", "epochs_per_rank": 4, "batch_size_per_rank": 20,
    "samples_per_rank": 100, "steps_per_epoch": 5, "time_per_step_s": 0.1, "tcp_sent_mb_per_step": 2.0,
    "test_loss": 0.5, "train_samples": 100, "features": 60, "status": "ok", "failure_kind": None,
    "resumed_after_epoch": None, "power_source": None, "power_reason": None, "oversubscribed": False,
    "code_is_current": True,
}  # fmt: skip
RUN |= {"step_time_median_s": 0.1, "step_time_p95_s": 0.2, "step_time_jitter": 0.1}
SWITCHES = {"arrays": {"input_pipeline": "keras_arrays"}, "sharded": {"sharding": "by_rank"}, "same": {"control": 1}}
DRIFT = np.exp([0.0, 0.2, -0.1, 0.3, 0.1, -0.2, 0.05])  # of the machine, which pairs within a block do not see
NOISE = np.exp([0.01, -0.01, 0.005, -0.005, 0.008, -0.008])


@pytest.fixture
def runs_of():
    """The tidy table of a baseline of 0.1 s a step and of arms: ``runs_of({arm: times faster}, blocks=6)``."""

    def build(faster, blocks=6, tuning=SWITCHES, **point):
        planned = expand(scaling="weak", repeats=blocks, tuning={name: tuning[name] for name in faster}, **point)
        rows = []
        for number, run in enumerate(sorted(planned, key=lambda run: run.repeat)):
            name, block = run.arms[0].name, run.repeat
            seconds = 0.1 * DRIFT[block - 1]
            if name != "baseline":
                seconds *= NOISE[(block + len(name)) % 6] / faster[name]
            rows.append({**RUN, **run.parameters, "block": block, "arms": format_arms(run), "started_wall_ns": number,
                         "record": f"{number}/record.json", "time_per_step_s": seconds})  # fmt: skip
        return pd.DataFrame(rows)

    return build


def table_of(runs):
    return TABLES["tuning"].make(runs, pd.DataFrame()).frame.set_index("arm")


def test_an_arm_is_compared_with_its_baseline_within_blocks(runs_of):
    table = table_of(runs_of({"arrays": 1.2, "sharded": 0.9, "same": 1.0}))
    assert list(table.index) == ["arrays", "sharded", "same"]
    assert table["verdict"].tolist() == ["faster", "slower", "no difference shown"]
    row = table.loc["arrays"]
    assert row[["switch", "value", "baseline_value"]].tolist() == ["input_pipeline", "keras_arrays", "tf_data"]
    logarithms = np.log(1.2 / np.roll(NOISE, -(1 + len("arrays"))))
    half = 2.571 * logarithms.std(ddof=1) / math.sqrt(6)  # t(0.975, 5), from a printed table
    assert row.throughput_ratio == pytest.approx(math.exp(logarithms.mean()))
    assert row.throughput_ratio_low == pytest.approx(math.exp(logarithms.mean() - half), rel=1e-4)
    assert (row.blocks, row.pairing, row.sent_ratio) == (6, "paired", 1)
    effect = math.log(1 + row.detectable_pct / 100) * math.sqrt(6) / logarithms.std(ddof=1)
    found = stats.nct.sf(stats.t.ppf(1 - 0.05 / 3 / 2, 5), 5, effect)
    assert found == pytest.approx(0.8, abs=1e-3), "by the strictest of the tests of three arms"
    assert (row.step_time_median_s, row.step_time_p95_s, row.step_time_jitter) == pytest.approx((0.1, 0.2, 0.1))
    assert row.baseline_time_per_step_s == pytest.approx(0.1 * DRIFT[:6].mean())


def test_the_only_epoch_builds_the_graph_and_gives_no_time_per_step(runs_of):
    row = table_of(runs_of({"arrays": 1.2}).assign(epochs_per_rank=1)).loc["arrays"]
    times = ["time_per_step_s", "baseline_time_per_step_s", "step_time_median_s", "step_time_p95_s", "step_time_jitter"]
    assert row[times].isna().all() and row.test_loss_difference == 0


def test_p_values_are_adjusted_over_the_arms_of_one_baseline(runs_of):
    table = table_of(runs_of({"arrays": 1.012, "sharded": 1.0, "same": 1.0}))
    assert table.loc["arrays"].p_holm == pytest.approx(3 * table.loc["arrays"].p_value)
    alone = table_of(runs_of({"arrays": 1.012}))
    assert alone.loc["arrays"].p_holm == alone.loc["arrays"].p_value == table.loc["arrays"].p_value
    assert alone.loc["arrays"].detectable_pct < table.loc["arrays"].detectable_pct, "fewer tests see smaller effects"


@pytest.mark.parametrize(("blocks", "verdict"), [(2, None), (3, "faster")])
def test_no_verdict_below_three_blocks(runs_of, blocks, verdict):
    row = table_of(runs_of({"arrays": 2.0}, blocks=blocks)).loc["arrays"]
    assert (row.blocks, row.verdict) == (blocks, verdict)
    assert math.isnan(row.p_value) == math.isnan(row.detectable_pct) == (verdict is None)


def test_a_failed_run_is_counted_and_never_averaged(runs_of):
    runs = runs_of({"arrays": 1.2, "same": 1.0})
    failed = (runs["input_pipeline"] == "keras_arrays") & (runs["block"] == 2)
    runs.loc[failed, ["status", "failure_kind", "time_per_step_s", "test_loss"]] = ["failed", "oom", 1e-9, 1e9]
    runs.loc[(runs["control"] == 0) & (runs["block"] == 3) & ~failed, "status"] = "failed"
    row = table_of(runs).loc["arrays"]
    assert (row.blocks, row.repeats_failed, row.baseline_failed, row.failures) == (4, 2, 1, "1 x oom")
    assert row.throughput_ratio == pytest.approx(1.2, rel=0.02)
    assert row.test_loss_difference == 0


def test_blocks_of_two_sessions_are_left_out_and_counted(runs_of):
    runs = runs_of({"arrays": 1.2})
    runs.loc[runs["record"].isin([f"{n}/record.json" for n in range(5, 12)]), "session"] = "2"  # from within block 3
    row = table_of(runs).loc["arrays"]
    assert (row.blocks, row.blocks_interrupted, row.pairing) == (5, 1, "paired")


def test_each_baseline_has_its_arms(runs_of):
    runs = runs_of({"arrays": 1.2, "same": 1.0}, gpus=[1, 2])
    table = TABLES["tuning"].make(runs, pd.DataFrame()).frame
    assert table[["gpus", "arm"]].to_numpy().tolist() == [[1, "arrays"], [1, "same"], [2, "arrays"], [2, "same"]]


def test_one_epoch_has_no_steady_throughput(runs_of):
    runs = runs_of({"arrays": 1.2}, epochs=1).assign(epochs_per_rank=1)
    row = table_of(runs).loc["arrays"]
    assert row.blocks == 0 and math.isnan(row.throughput_ratio) and row.verdict is None


def test_bytes_are_those_of_an_epoch(runs_of):
    """Half as many steps of twice the bytes send as much."""
    runs = runs_of({"arrays": 1.0})
    arm = runs["input_pipeline"] == "keras_arrays"
    runs.loc[arm, ["steps_per_epoch", "tcp_sent_mb_per_step"]] = [10, 0.5]
    assert table_of(runs).loc["arrays"].sent_ratio == pytest.approx(0.5)


# Figure


def drawn(runs):
    return tuning_drawing.select(load_description("tuning"), runs, "test")


@pytest.mark.slow
def test_the_forest_plot_has_a_row_per_arm_and_the_control_apart(runs_of, tmp_path):
    runs = runs_of({"same": 1.0, "arrays": 1.2, "sharded": 0.9}, gpus=[1, 2])
    runs.loc[(runs["gpus"] == 1) & (runs["sharding"] == "by_rank") & (runs["block"] == 1), "status"] = "failed"
    data = drawn(runs)
    assert [title for title, _ in data.panels] == ["NT3, 1 rank", "NT3, 2 ranks"]
    figure = tuning_drawing.draw(data)
    upper, lower = figure.axes
    assert [tick.get_text() for tick in upper.get_yticklabels()] == ["arrays", "sharded", "same (A/A)"]
    assert upper.get_yticks()[2] - upper.get_yticks()[1] > 1
    low, high = upper.get_xlim()
    assert low < 0.9 < 1.2 < high and lower.get_xlim() == (low, high)
    _, arrays, sharded = (text.get_text() for text in upper.texts)
    assert re.fullmatch(r"1\.2\d \(1\.\d\d to 1\.\d\d\)", arrays)
    assert sharded.endswith("), 1 failed") and not any("failed" in text.get_text() for text in lower.texts)


# Tuner


@pytest.fixture
def tuned(runs_of):
    """(study, runs) of arms with these speeds: ``tuned({arm: times faster}, blocks=6)``."""

    def build(faster, blocks=6, **more):
        content = copy.deepcopy(STUDY)
        tuning = {name: SWITCHES[name] for name in faster}
        point = {"benchmark": "nt3", "scaling": "weak", "epochs": 4, "gpus": 2, "loader": "read_csv"}
        content |= {"runs": [{**point, "repeats": blocks, "tuning": tuning}], **more}
        study, runs = expansion.expand_study("test", content, "test.yaml"), runs_of(faster, blocks)
        ordered = sorted(study.runs, key=lambda run: run.repeat)
        runs["record"] = [f"runs/{run.directory}/record.json" for run in ordered]
        return study, runs

    return build


def answer_of(study, runs):
    (answer,) = tuner.answer_baselines(study, runs)
    return answer, "\n".join(describe_answer(answer))


@pytest.mark.slow
def test_the_pick_of_the_screening_blocks_is_confirmed_by_the_others(tuned):
    study, runs = tuned({"arrays": 1.2, "sharded": 1.05, "same": 1.0}, blocks=7)
    answer, told = answer_of(study, runs)
    assert (answer.screening, answer.held_out) == ((1, 2, 3, 4), (5, 6, 7)), "half of the blocks, rounded up"
    assert [arm.arm for arm in answer.screened] == ["arrays", "sharded"], "the control is no candidate"
    assert (answer.verdict, answer.confirmed.arm, answer.confirmed.speed.blocks) == (tuner.TURN, "arrays", 3)
    assert answer.confirmed.p_holm == answer.confirmed.p, "one test"
    assert told.startswith(
        "nt3 on 2 ranks: turn arrays (input_pipeline keras_arrays instead of tf_data): steady throughput +"
    )


@pytest.mark.slow
def test_the_gain_is_of_the_held_out_blocks_only(tuned):
    """An arm that was fast in the screening blocks by chance."""
    study, runs = tuned({"arrays": 1.0, "sharded": 0.9})
    lucky = (runs["input_pipeline"] == "keras_arrays") & (runs["block"] <= 3)
    runs.loc[lucky, "time_per_step_s"] /= 1.5
    answer, told = answer_of(study, runs)
    assert answer.pick.speed.value > 1.4 > 1.05 > answer.confirmed.speed.value
    assert answer.verdict == tuner.KEEP
    assert "keep the defaults, no difference shown: arrays" in told and "would probably not have been found" in told
    runs.loc[(runs["input_pipeline"] == "keras_arrays") & ~lucky, "time_per_step_s"] *= 2
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.KEEP and "as good" not in told and "has -" in told
    fails = runs["arms"].str.startswith('[["baseline"') & (runs["block"] == 6)
    runs.loc[fails, ["status", "failure_kind"]] = ["failed", "oom"]
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.NOT_ENOUGH
    assert "is picked; in the held-out blocks baseline failed in 1 of 3 runs (oom" in told


def test_an_arm_that_failed_in_a_held_out_block_is_not_turned(tuned):
    study, runs = tuned({"arrays": 1.2, "sharded": 1.0}, blocks=7, screening_blocks=3)
    runs.loc[(runs["input_pipeline"] == "keras_arrays") & (runs["block"] == 7), "status"] = "failed"
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.KEEP
    assert "keep the defaults: 1 of 4 runs of arrays (input_pipeline keras_arrays instead of tf_data) failed in" in told
    (row,) = make_tuner_table(study, [answer]).frame.to_dict("records")
    assert (row["held_out_blocks"], row["blocks"], row["repeats_failed"]) == ("4 to 7", 3, 1)


@pytest.mark.parametrize(("block", "screening"), [(1, 4), (7, 3)])
def test_a_lost_host_says_nothing_of_an_arm(tuned, block, screening):
    """One of four blocks, screening or held-out, lost a host: its run is missing, and no failure of the arm."""
    study, runs = tuned({"arrays": 1.2, "sharded": 1.0}, blocks=7, screening_blocks=screening)
    lost = (runs["input_pipeline"] == "keras_arrays") & (runs["block"] == block)
    runs.loc[lost, ["status", "failure_kind"]] = ["failed", "host_lost"]
    answer, told = answer_of(study, runs)
    assert (answer.pick.arm, answer.verdict, answer.failed) == ("arrays", tuner.TURN, 0)
    (row,) = make_tuner_table(study, [answer]).frame.to_dict("records")
    assert (row["blocks"], row["repeats_failed"]) == ((3, 1) if block == 7 else (3, 0))
    assert ("1 run of the held-out blocks was lost with a host or a batch job" in told) == (block == 7)


def test_held_out_blocks_that_did_not_run_one_after_the_other_confirm_nothing(tuned):
    study, runs = tuned({"arrays": 1.2, "sharded": 1.0}, blocks=7)
    later = (runs["input_pipeline"] == "keras_arrays") & (runs["block"] > 4)
    runs.loc[later, "started_wall_ns"] += 10**15
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.NOT_ENOUGH
    assert "is picked; its held-out blocks did not run one after the other" in told


def test_answers_of_as_many_ranks_are_told_apart_by_the_keys_in_which_they_differ(tuned):
    answer, _ = answer_of(*tuned({"arrays": 1.2}))
    longer = dataclasses.replace(answer, point={**answer.point, "epochs": 50})
    wider = dataclasses.replace(answer, point={**answer.point, "gpus": 4, "epochs": 9})
    told = [describe_answer(each, [answer, longer, wider])[0].split(":")[0] for each in (answer, longer, wider)]
    assert told == ["nt3 on 2 ranks, epochs 4", "nt3 on 2 ranks, epochs 50", "nt3 on 4 ranks"]


def test_the_defaults_are_a_candidate(tuned):
    answer, told = answer_of(*tuned({"arrays": 0.9, "sharded": 0.8}))
    assert (answer.pick, answer.confirmed, answer.verdict) == (None, None, tuner.KEEP)
    assert told == "nt3 on 2 ranks: keep the defaults: none of 2 arms was faster in the screening blocks"


def test_an_arm_that_failed_in_a_screening_block_is_not_picked(tuned):
    study, runs = tuned({"arrays": 1.5, "sharded": 1.2})
    runs.loc[(runs["input_pipeline"] == "keras_arrays") & (runs["block"] == 1), "status"] = "failed"
    answer, told = answer_of(study, runs)
    assert answer.pick.arm == "sharded"
    assert "arrays was not picked: 1 of 3 runs failed in the screening blocks" in told


@pytest.mark.slow
def test_the_study_declares_how_many_blocks_pick(tuned):
    study, runs = tuned({"arrays": 1.2}, blocks=7, screening_blocks=3)
    assert answer_of(study, runs)[0].held_out == (4, 5, 6, 7)
    study, runs = tuned({"arrays": 1.2}, blocks=4)
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.NOT_ENOUGH, "two screening blocks"
    assert "arrays was not picked: 2 of at least 3 screening blocks" in told
    study, runs = tuned({"arrays": 1.2}, blocks=5)
    assert "there are too few held-out blocks to confirm it" in answer_of(study, runs)[1]


def test_a_difference_of_the_loss_and_of_the_baseline_from_itself_is_told(tuned):
    study, runs = tuned({"arrays": 1.2, "same": 1.1})
    runs.loc[runs["input_pipeline"] == "keras_arrays", "test_loss"] -= 0.1 + 0.001 * runs["block"]
    answer, told = answer_of(study, runs)
    assert "the test loss of arrays differs by -0.1050" in told
    assert "the baseline differs from itself (same) by +" in told
    assert answer.verdict == tuner.TURN, "its gain is larger than that"


def test_a_faster_arm_that_learns_less_is_not_turned(tuned):
    study, runs = tuned({"arrays": 1.2, "same": 1.0})
    runs.loc[runs["input_pipeline"] == "keras_arrays", "test_loss"] += 0.1 + 0.001 * runs["block"]
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.KEEP
    assert "but its test loss is higher by 0.1050" in told


def test_a_difference_of_less_than_a_percent_of_the_loss_is_that_of_another_order_of_sums(tuned):
    study, runs = tuned({"arrays": 1.2, "same": 1.0})
    runs.loc[runs["input_pipeline"] == "keras_arrays", "test_loss"] *= 1.005
    assert answer_of(study, runs)[0].verdict == tuner.TURN


def test_a_gain_no_larger_than_the_difference_of_the_baseline_from_itself_is_not_turned(tuned):
    study, runs = tuned({"arrays": 1.1, "same": 1.1})
    answer, told = answer_of(study, runs)
    assert answer.verdict == tuner.KEEP and answer.confirmed.verdict == arms.NO_DIFFERENCE
    assert "no difference shown: arrays" in told and "but the baseline differs from itself by up to" in told
    assert answer_of(*tuned({"arrays": 1.05, "same": 1.1}))[0].confirmed.verdict == arms.NO_DIFFERENCE


@pytest.mark.slow
def test_the_next_stage_has_the_screening_blocks_then_the_pick_and_the_control(tuned):
    study, runs = tuned({"arrays": 1.2, "sharded": 1.05, "same": 1.0})
    first = tuner.list_needed_runs(study, runs.iloc[:0])
    assert {run.repeat for run in first} == {1, 2, 3} and len(first) == 3 * 4
    assert {run.repeat for run in tuner.list_needed_runs(study, runs[runs["block"] <= 2])} == {3}
    second = tuner.list_needed_runs(study, runs[runs["block"] <= 3])
    assert {run.repeat for run in second} == {4, 5, 6}
    assert len(second) == 3 * 3 and {run.arms[0].name for run in second} == {"baseline", "arrays", "same"}
    assert tuner.list_needed_runs(study, runs) == []


def test_there_is_no_pick_and_no_verdict_before_a_stage_has_ended(tuned):
    """Who stops as soon as a difference shows finds too many."""
    study, runs = tuned({"arrays": 1.5, "same": 1.0}, blocks=7)
    answer, told = answer_of(study, runs[runs["block"] <= 3])
    told_of = "not enough blocks: 3 runs of the screening blocks without a record yet"
    assert answer.pick is None and told.endswith(told_of)
    answer, told = answer_of(study, runs[runs["block"] <= 6])
    assert (answer.confirmed, answer.verdict) == (None, tuner.NOT_ENOUGH)
    assert told.endswith("not enough blocks: arrays is picked, 3 runs of the held-out blocks without a record yet")


def test_the_tuner_s_table_has_a_row_per_baseline(tuned):
    study, runs = tuned({"arrays": 1.2, "same": 1.0})
    (row,) = make_tuner_table(study, tuner.answer_baselines(study, runs)).frame.to_dict("records")
    assert (row["pick"], row["value"], row["arms"], row["verdict"]) == ("arrays", "keras_arrays", 1, "turn")
    assert (row["screening_blocks"], row["held_out_blocks"]) == ("1 to 3", "4 to 6")
    (nothing,) = make_tuner_table(study, tuner.answer_baselines(study, runs.iloc[:0])).frame.to_dict("records")
    assert nothing["verdict"] == "not enough blocks" and nothing["pick"] is None
