"""Intervals hold their level: what enters them, how often one looks, and how they are written. All seeds are fixed."""

import copy
import dataclasses
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from examples import STUDY
from scipy import special
from test_findings import GRID, declared, rows, study_of
from test_tuning import RUN

from study import plan
from study.commands.steps import make_findings
from study.compare import estimates, first_verdicts, noise_of_runs, reference_check, tuner
from study.core.statistics import (
    compare_paired_means,
    compute_all_pairs_quantile,
    compute_confirmation_probability,
    compute_t_quantile,
    count_independent,
    summarize_logarithms,
)
from study.core.wording import format_significant
from study.experiment import expansion
from study.machines import machine
from study.records import table_inputs
from study.records.tidy import format_arms
from study.report import sources
from study.report.figures.description import load_description
from study.report.figures.kinds import KINDS as FIGURES
from study.report.figures.kinds import Inputs
from study.report.findings import declaration, outcome
from study.report.findings.kinds import ALONG, KINDS, VALUE, Estimate
from study.report.tables import TABLES
from study.report.tables.layout import Table
from study.report.tables.tuning import describe_answer

STUDIES, AS_TABLES = 400, 20  # simulated studies; how many of them are also compared as tables of runs
LEAST = 0.95 - 4 * math.sqrt(0.05 * 0.95 / STUDIES)  # 4 standard deviations below the level: 0.906
MOST = 0.05 + 4 * math.sqrt(0.05 * 0.95 / STUDIES)


def arm(values, place, arms, along=0.0):
    blocks = np.arange(len(values))
    return pd.DataFrame({"block": blocks + 1, "status": "ok", "session": "s", "started_wall_ns": blocks * arms + place,
                         VALUE: values, ALONG: along})  # fmt: skip


def compared(kind, values, names, along=None):
    """Blocks in rows, arms in columns."""
    along = np.zeros_like(values) if along is None else along
    number = len(names)
    return KINDS[kind].compare(
        {name: arm(values[:, place], place, number, along[:, place]) for place, name in enumerate(names)}
    )


def computed(kind, values, names, along=None):
    """(estimate, low, high) as from `compared`, without tables of runs, which take a hundred times as long."""
    if kind == "ratio":
        sample = estimates.sample_of_ratios(*values.T)
        return (sample.middle, *sample.interval(0.025))  # on each side
    places = np.log2(names) if kind == "trend" else np.arange(len(names))
    along = np.broadcast_to(places, values.shape) if kind == "trend" else along
    return estimates.slope_of_blocks(along.T, values.T, places)


def share_that_holds(draw, truth):
    """The share of intervals that contain the truth. draw: the arguments of `compared` for one study."""
    found = []
    for number in range(STUDIES):
        drawn = draw()
        found.append(computed(*drawn))
        if number < AS_TABLES:
            table = compared(*drawn)
            assert found[-1] == pytest.approx((table.value, table.low, table.high), rel=1e-9)
    return float(np.mean([low <= truth <= high for _, low, high in found]))


@pytest.mark.case("trend-random-slopes", source="kent-tokyo/chematic #70", right="95 %")
@pytest.mark.parametrize("arms", [2, 3, 5])
def test_a_trend_holds_its_level_where_blocks_differ_in_slope(arms):
    rng, doublings = np.random.default_rng(arms), np.arange(arms)
    names = [2**each for each in doublings]

    def draw():
        slopes = rng.normal(0, 3, (6, 1))
        return "trend", 100 + slopes * doublings + rng.normal(0, 0.5, (6, arms)), names

    share = share_that_holds(draw, 0)
    assert share >= LEAST


@pytest.mark.case("follows-noisy-along", source="statsmodels #3187", right="1.00, 95 %")
@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("blocks", [6, 20])
def test_noise_of_along_pulls_no_slope_to_0(noise, blocks):
    rng = np.random.default_rng(1)
    estimates = []

    def draw():
        true = np.array([2.0, 3.0, 4.0]) + rng.normal(0, 0.3, (blocks, 3))
        drawn = "follows", true + rng.normal(0, 0.1, true.shape), "abc", true + rng.normal(0, noise, true.shape)
        estimates.append(computed(*drawn)[0])
        return drawn

    share = share_that_holds(draw, 1)
    assert np.mean(estimates) == pytest.approx(1, abs=0.06) and share >= LEAST


@pytest.mark.case("follows-without-an-effect-on-along", source="our own", right="no verdict, with the reason")
def test_arms_that_do_not_change_along_give_no_verdict():
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1, (6, 3))
    found = compared("follows", values + rng.normal(0, 0.1, (6, 3)), "abc", values)
    assert (found.low, found.high) == (-math.inf, math.inf)
    finding = declared(kind="follows", along={"column": "load_s"})
    verdict, sentence = outcome._write_verdict(finding, found, None)
    assert verdict == "not_enough_runs" and "load_s cannot be shown to change along the values of loader" in sentence


@pytest.mark.case("follows-shared-noise", source="our own", right="at most 5 % miss")
@pytest.mark.parametrize("together", [-0.9, 0.9])
def test_noise_that_both_quantities_share_gives_no_false_slope(together):
    """The clock that ends one phase begins the next: the noise of the two is correlated, and the arms differ little."""
    rng = np.random.default_rng(4)

    def draw():
        noise = rng.normal(0, 1, (2, 6, 3))
        true = np.array([0.0, 0.5, 1.0]) + np.zeros((6, 3))
        own = together * noise[0] + math.sqrt(1 - together**2) * noise[1]
        return "follows", true + own, "abc", true + noise[0]

    missed = 1 - share_that_holds(draw, 1)
    assert missed <= MOST


@pytest.mark.case("arms-in-another-order", source="our own", right="1")
def test_numbers_are_ordered_by_value_and_not_as_they_are_declared():
    along = np.array([[4.0, 0.0, 2.0]] * 3) + np.array([[0.0], [0.1], [0.2]])
    found = compared("follows", along.copy(), [4, 0, 2], along)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))


@pytest.mark.case("rounding-of-floats-is-no-effect", source="our own", right="no effect within")
def test_rounding_of_floats_has_no_verdict():
    """0.1 + 0.2 is not 0.3: shares that are equal up to rounding differ by nothing."""
    values = np.array([[0.3, 0.1 + 0.2]] * 3)
    for kind, no_effect in (("ratio", 1), ("trend", 0)):
        found = compared(kind, values, [1, 2])
        assert (found.low, found.high) == (no_effect, no_effect)


@pytest.mark.case("batch-size-winner", source="keras-team/keras-tuner #1018", right="at most 5 % of tables")
@pytest.mark.parametrize(("number", "blocks"), [(8, 5), (8, 3), (4, 3)])
def test_the_best_of_equals_is_not_told_apart(number, blocks):
    """The rule of table batch_size_optimum, on many tables at once."""
    rng = np.random.default_rng(6)
    values = rng.normal(0, 0.02, (4000, blocks, number))
    differences = values[..., None] - values[..., None, :]
    own = differences.var(axis=1, ddof=1)
    common = own.sum(axis=(1, 2)) / (number * (number - 1))
    half = compute_all_pairs_quantile(number, (number - 1) * (blocks - 1), 0.05) * np.sqrt(
        np.maximum(own, common[:, None, None]) / blocks
    )
    told = (np.abs(differences.mean(axis=1)) > half).any(axis=(1, 2)).mean()
    assert told <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 4000)


def test_all_pairs_of_two_is_student_s_t():
    assert compute_all_pairs_quantile(2, 4, 0.05) == pytest.approx(compute_t_quantile(4, 0.025), rel=1e-4)


@pytest.mark.case("mean-against-others-interval", source="sharkdp/hyperfine #523", right="5 %")
@pytest.mark.parametrize("repeats", [3, 20])
def test_equal_losses_are_told_apart_in_5_percent(repeats):
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(STUDIES):
        one, other = (arm(rng.normal(0.5, 0.02, repeats), 0, 2).rename(columns={VALUE: "test_loss"}) for _ in "ab")
        _, low, high = estimates.estimate_difference(one, other, "test_loss").numbers
        wrong += low > 0 or high < 0
    assert wrong / STUDIES <= MOST


@pytest.mark.case("optional-stopping", source="zombocom/derailed_benchmarks #164", right="at most 5 %")
def test_looking_again_does_not_change_a_verdict():
    study = study_of({**GRID, "repeats": 10})
    rng = np.random.default_rng(8)
    finding, wrong, studies = declared(), 0, 60
    for _ in range(studies):
        runs = rows(study, lambda run: float(np.exp(rng.normal(0, 0.02))))
        first = None
        verdicts = set()
        for blocks in (3, 6, 10):
            there = runs[runs["block"] <= blocks]
            found = outcome.judge_finding(finding, study, there, first)
            first = outcome.add_first_verdicts([found], there, {})["test"]
            verdicts.add(found.low > 0 or found.high < 0)
        wrong += True in verdicts
        assert len(verdicts) == 1 and "14 runs (added after a verdict was seen)" in found.sentence
    assert wrong / studies <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.case("optional-stopping-of-a-check", source="our own", right="the first check stands")
def test_repeats_added_to_an_uncertain_check_do_not_enter():
    def series(values):
        runs = tuple(f"run{place}" for place in range(len(values)))
        return reference_check.Series("runtime_s", "p", "s", values, None, 0.02, code="c", records="r", runs=runs)

    accepted = {
        each.key: each
        for each in reference_check.accept_series(
            [reference_check.Series("runtime_s", "p", "s", [10.0, 10.1, 10.2], None, 0.02)], {}
        )
    }
    early = [series([10.1, 10.3, 10.5])]
    table = reference_check.compare_series(early, accepted)
    assert table["verdict"].iloc[0] == reference_check.UNCERTAIN
    noted = reference_check.add_first_verdicts(early, table, {})
    later = reference_check.drop_later_repeats([series([10.1, 10.3, 10.5, 12.0, 12.1, 12.0, 12.1])], noted)
    again = reference_check.compare_series(later, accepted)
    assert again["repeats"].iloc[0] == 3 and again["verdict"].iloc[0] == reference_check.UNCERTAIN
    assert again["reason"].iloc[0] == reference_check.ADDED_LATER


@pytest.mark.case("runs-that-were-trained-again", source="our own", right="a new verdict")
def test_runs_that_were_trained_again_give_a_new_verdict(tmp_path):
    cases = ((["a", "b"], "abc", [2]), (["a", "b"], "ab", []), (["a", "b"], "bcd", []), (None, "a", []))
    for first, now, later in cases:
        assert first_verdicts.find_later_runs(first, dict(enumerate(now))) == later
    first_verdicts.write(tmp_path, "findings", {"x": ["a"]})
    assert first_verdicts.read(tmp_path, "findings") == {"x": ["a"]} and first_verdicts.read(tmp_path, "check") == {}


@pytest.mark.case("rounding", source="GoogleChrome/lighthouse-ci #31", right="an interval that excludes 1 shows it")
@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.0004, 1.04, "yes"), (0.9996, 1.04, "no"), (1 + 1e-9, 1.04, "yes")]
)
def test_the_printed_interval_agrees_with_the_verdict(low, high, verdict):
    found = outcome._write_verdict(declared(kind="ratio"), Estimate(1.02, low, high, 6, True), None)
    printed = float(found[1].split("interval ")[1].split(" to ")[0])
    assert found[0] == verdict and (printed > 1) == (low > 1) and (printed < 1) == (low < 1)


@pytest.mark.case("rounding-within", source="GoogleChrome/lighthouse-ci #31", right="0.9896 is below 0.99")
def test_margins_and_bounds_are_visible_too():
    _, sentence = outcome._write_verdict(declared(kind="ratio", within=1), Estimate(1.0, 0.9896, 1.0096, 6, True), None)
    assert "0.9896 to 1.01" not in sentence and "interval 0.9896 to 1.0096" in sentence.replace("1.00960", "1.0096")
    _, sentence = outcome._write_verdict(declared(), Estimate(99.96, 99.951, 99.9996, 6, True), None)
    assert "100 %" not in sentence
    assert format_significant(-0.00001, (0,)) == "-1e-05" and format_significant(1234.9, (1235,)) == "1234.9"


@pytest.mark.case("rounding-in-tables", source="our own", right="1.00004 and 0.05")
def test_tables_show_on_which_side_of_no_effect_an_interval_ends():
    frame = pd.DataFrame({"throughput_ratio_low": [1.00004, 0.99996, 1.2], "p_holm": [0.049999, 0.050001, 0.3]})
    text = Table("t", "c", frame, list(frame)).markdown()
    assert "1.00004" in text and "0.99996" in text and "1.200" in text and "0.049999" in text


@pytest.mark.case("percent-of-a-share", source="hyrise #2250", right="50 % of the share")
def test_a_reduction_of_a_share_says_of_what():
    study = study_of(GRID)
    runs = rows(study, lambda run: 10.0, load_s=lambda run: 2.0 if run["loader"] == "chunked" else 4.0)
    found = outcome.judge_finding(declared(quantity={"column": "load_s", "share_of": "runtime_s"}), study, runs)
    assert found.unit == "% of the share" and "Shorter by 50 % of the share" in found.sentence


@pytest.mark.case("first-epoch-in-throughput", source="alpa-projects/alpa #823", right="0.952")
def test_findings_of_equivalence_leave_out_the_first_epoch():
    from study.records.tidy import compute_steady_throughput as steady_samples_per_s

    run = {"steps_per_epoch": 50, "gpus": 1, "emulated_ranks": 1, "epochs_per_rank": 3, "samples_per_rank": 1000}
    slow, fast = steady_samples_per_s(pd.DataFrame([{**run, "time_per_step_s": step / 50} for step in (2.1, 2.0)]))
    found = slow / fast
    assert found == pytest.approx(0.952, abs=0.001)
    from study.report.findings import declaration

    for name in ("jpeg_files", "lmdb"):
        assert declaration.load_finding(f"{name}_as_fast_as_tfrecord").quantity.column == "steady_samples_per_s"


@pytest.mark.case("tables-coverage", source="MikkoParkkola/mcp-gateway #615", right="95 %")
def test_plus_or_minus_of_three_repeats_holds():
    from study.core.statistics import summarize

    rng = np.random.default_rng(9)
    found = [summarize(rng.normal(1, 0.03, 3)) for _ in range(STUDIES)]
    share = float(np.mean([abs(each.mean - 1) <= each.ci95 for each in found]))
    assert share >= LEAST


@pytest.mark.case("tune-power", source="keras-team/keras-tuner #1018", right="37 % and 76 %")
def test_the_power_of_a_design_is_that_of_simulated_studies():
    found = [compute_confirmation_probability(math.log(1.05), 0.02, 5, blocks, blocks, 0.05) for blocks in (3, 5)]
    rng, simulated = np.random.default_rng(18), []
    for blocks in (3, 5):
        means = 0.02 * rng.standard_normal((20_000, 6)) / math.sqrt(blocks)  # of the baseline and five arms
        means[:, 5] += math.log(1.05)
        picked = (means.argmax(axis=1) == 5).mean()
        pairs = 0.02 * (rng.standard_normal((20_000, blocks)) - rng.standard_normal((20_000, blocks)))
        simulated.append(picked * missed(pairs + math.log(1.05))[0])
    assert found == pytest.approx(simulated, abs=0.02)
    assert found == pytest.approx([0.37, 0.76], abs=0.03)
    assert compute_confirmation_probability(0.0, 0.02, 5, 3, 3, 0.05) <= 0.025


def test_fieller_without_noise_below_is_student_s_t():
    found = compare_paired_means([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 0.025)
    half = compute_t_quantile(2, 0.025) / math.sqrt(3)
    assert found == pytest.approx((2, 2 - half, 2 + half))
    assert all(map(math.isnan, compare_paired_means([1.0, 2.0], [0.0, 0.0], 0.025)))


def autocorrelated(rng, rho, shape):
    noise = rng.standard_normal(shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0]
    for place in range(1, shape[1]):
        values[:, place] = rho * values[:, place - 1] + math.sqrt(1 - rho**2) * noise[:, place]
    return values


def missed(values, truth=0.0):
    """The share of 95 % intervals of the mean, by as many blocks as they are worth, that miss it; and by t as it is."""
    n = values.shape[1]
    found = []
    for worth in (count_independent(values), np.full(len(values), n)):
        quantiles = special.stdtrit(worth - 1, 0.975)
        half = quantiles * values.std(axis=1, ddof=1) / np.sqrt(worth)
        found.append(float((np.abs(values.mean(axis=1) - truth) > half).mean()))
    return found


@pytest.mark.case("autocorrelated-blocks", source="sharkdp/hyperfine #483", right="t alone misses 25 %")
@pytest.mark.parametrize(("rho", "most"), [(0.0, 0.05), (0.3, 0.115), (0.5, 0.13), (0.7, 0.15)])
def test_blocks_that_resemble_the_one_before_widen_the_interval(rho, most):
    ours_missed, t_missed = missed(autocorrelated(np.random.default_rng(11), rho, (8000, 20)))
    assert ours_missed <= most
    assert ours_missed <= t_missed


@pytest.mark.case("outliers-in-both-arms", source="our own", right="at most 5 %")
@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_runs_that_are_delayed_now_and_then_give_no_false_difference(blocks):
    """One run in ten takes a third longer, whichever arm it is of."""
    rng = np.random.default_rng(12)
    one, other = 0.02 * rng.standard_normal((2, 8000, blocks)) + 0.3 * (rng.random((2, 8000, blocks)) < 0.1)
    share, _ = missed(one - other)
    assert share <= 0.055


@pytest.mark.case("lognormal-noise", source="our own", right="at most 5 %")
def test_skewed_noise_of_both_arms_gives_no_false_difference():
    rng = np.random.default_rng(13)
    share, _ = missed(np.exp(0.5 * rng.standard_normal((8000, 6))) - np.exp(0.5 * rng.standard_normal((8000, 6))))
    assert share <= 0.055


def test_a_ratio_and_a_slope_count_only_what_their_blocks_are_worth():
    series = np.array([-3, -2.2, -1.6, -0.9, -0.2, 0.4, 1.2, 1.8, 2.4, 3.1]) / 100
    values = np.exp(np.stack([series, 0 * series], axis=1))
    ratio = estimates.estimate_ratio(*(arm(values[:, place], place, 2) for place in (0, 1)), VALUE)
    assert ratio.blocks == 10 and ratio.worth == 3
    half = compute_t_quantile(2, 0.025) * ratio.deviation / math.sqrt(3)
    assert math.log(ratio.high / ratio.value) == pytest.approx(half)
    found = compared("trend", 100 + 100 * np.stack([0 * series, series], axis=1), [1, 2])
    assert (found.high - found.low) / 2 == pytest.approx(
        100 * compute_t_quantile(2, 0.025) * series.std(ddof=1) / math.sqrt(3)
    )
    shuffled = series[[0, 5, 2, 9, 1, 7, 3, 8, 4, 6]]
    assert float(count_independent(shuffled)) == 10 and float(count_independent(np.full(10, 0.1))) == 10


@pytest.mark.case("gains-of-sharing", source="keras-team/keras-tuner #1018", right="at most 5 % of tables")
def test_a_gain_of_sharing_is_adjusted_over_the_rows_of_its_table():
    from study.core.statistics import compute_p_value
    from study.report.tables import ensembles

    rng, told, alone = np.random.default_rng(14), 0, 0
    for _ in range(STUDIES):
        ps = [compute_p_value(summarize_logarithms(rng.normal(0, 0.02, 4))) for _ in range(8)]
        gains = pd.DataFrame({f"{gain}{end}": ps for gain in ("time", "cpu") for end in ("_p", "_gain")})
        told += bool(ensembles._add_verdicts(gains)["time_verdict"].ne(ensembles.NO_DIFFERENCE).any())
        alone += min(ps) < 0.05
    assert told / STUDIES <= MOST and alone / STUDIES > 0.2


def tuned_study(blocks):
    content = copy.deepcopy(STUDY)
    content["runs"] = [{"benchmark": "nt3", "scaling": "weak", "epochs": 4, "gpus": 2, "loader": "read_csv",
                        "repeats": blocks, "tuning": {"xla": {"xla": True}, "same": {"control": 1}}}]  # fmt: skip
    return expansion.expand_study("test", content, "test.yaml")


def tuned_runs(study, step):
    """Rows of the tidy table: ``step(arm, block)`` is the time of a step."""
    ordered = sorted(study.runs, key=lambda run: run.repeat)
    return pd.DataFrame([
        {**RUN, **run.parameters, "block": run.repeat, "arms": format_arms(run), "started_wall_ns": place,
         "record": f"runs/{run.directory}/record.json", "time_per_step_s": step(run.arms[0].name, run.repeat)}
        for place, run in enumerate(ordered)
    ])  # fmt: skip


@pytest.mark.case("optional-stopping-of-make-tune", source="our own", right="the first verdict stands")
def test_blocks_added_to_a_tuner_s_answer_do_not_enter():
    """Six blocks show no difference; in the four that are added the arm is 20 % faster."""
    first, more = tuned_study(6), tuned_study(10)
    noise = {block: 0.004 * (-1) ** block for block in range(1, 11)}

    def step(arm, block):
        faster = arm == "xla" and block > 6
        return 0.1 * math.exp((noise[block] if arm == "xla" else 0) - 0.0001 * (arm == "xla")) / (1.2 if faster else 1)

    runs = tuned_runs(first, step)
    before = tuner.answer_baselines(first, runs)
    assert before[0].verdict == tuner.KEEP
    noted = tuner.add_first_verdicts(before, runs, {})
    assert tuner.answer_baselines(more, runs, noted)[0].verdict == tuner.KEEP, (
        "also while the added ones are not there yet"
    )
    assert tuner.list_needed_runs(more, runs, noted) == []
    added = tuned_runs(more, step)
    known = dict(zip(runs["record"], runs["started_wall_ns"], strict=True))
    added["started_wall_ns"] = [known.get(record, 100 + place) for place, record in enumerate(added["record"])]
    (after,) = tuner.answer_baselines(more, added, noted)
    (fresh,) = tuner.answer_baselines(more, added)
    assert (after.verdict, after.held_out, after.added) == (tuner.KEEP, (4, 5, 6), 12)
    assert fresh.verdict == tuner.TURN
    assert "12 runs added after this verdict was seen: left out" in describe_answer(after)


@pytest.mark.case("optional-stopping-of-a-table", source="our own", right="the first verdict stands")
def test_repeats_added_to_a_table_with_a_verdict_do_not_enter():
    study = tuned_study(8)
    runs = tuned_runs(study, lambda arm, block: 0.1 / (1.1 if arm == "xla" and block > 3 else 1) + 0.0001 * block)
    early = runs[runs["block"] <= 3]
    table = TABLES["tuning"].make(early, pd.DataFrame())
    noted = first_verdicts.add_verdicts(early, table.list_judged_records(TABLES["tuning"].verdicts), {})
    assert len(noted) == 3, "the baseline and two arms"
    kept, late = first_verdicts.drop_later_runs(runs, noted)
    assert (set(kept["block"]), late) == ({1, 2, 3}, 15)
    before = first_verdicts.add_verdicts(
        early.drop(columns=["torch_compile", "simulated_samples_per_s"]), list(early["record"]), {}
    )
    now = runs.astype({"kmp_blocktime_ms": float})  # as tables of records have it
    assert first_verdicts.drop_later_runs(now, before)[1] == 15, "the note is older than two grid keys"
    other = runs.assign(gpus=4, record=runs["record"] + "4")
    assert first_verdicts.drop_later_runs(other, noted)[1] == 0, "other points are new questions"
    again = runs.assign(started_wall_ns=runs["started_wall_ns"] + 1000)
    assert first_verdicts.drop_later_runs(again, noted)[1] == 0, "runs that were trained again are new ones"


@pytest.mark.case("first-verdicts-are-noted", source="our own", right="the file, and the same verdict again")
def test_the_command_for_findings_notes_first_verdicts(tmp_path, monkeypatch):
    study = study_of({**GRID, "repeats": 6})
    runs = rows(study, lambda run: 10.0 + (run["loader"] == "chunked" and run.repeat > 3) + 0.01 * run.repeat)
    study = dataclasses.replace(study, findings=("test",))
    monkeypatch.setattr(outcome, "load_finding", lambda name: declared())
    monkeypatch.setattr(expansion, "load_planned_study", lambda name: study)
    monkeypatch.setattr(sources, "select_finding_sources", lambda study: SimpleNamespace(runs=study.runs))
    folder = tmp_path / "local" / "studies" / "test"
    folder.mkdir(parents=True)
    files = [f"--{form}={folder}/findings.{form}" for form in ("json", "markdown")]
    monkeypatch.setattr(sys, "argv", ["make_findings", "--study", "test", *files])
    sentences_of = []
    for blocks in (3, 6):
        there = runs[runs["block"] <= blocks]
        monkeypatch.setattr(table_inputs, "gather", lambda *given, there=there, **more: (there, None))
        make_findings(standalone_mode=False)
        (found,) = json.loads((folder / "findings.json").read_text())["findings"]
        sentences_of.append((found["verdict"], found["estimate"], found["blocks"]))
    assert len(first_verdicts.read(folder, "findings")["test"]) == 6, "three blocks of two arms"
    assert sentences_of[0] == sentences_of[1] and sentences_of[0][2] == 3
    assert "6 runs (added after a verdict was seen)" in (folder / "findings.markdown").read_text()


@pytest.mark.case("power-from-finished-runs", source="our own", right="the noise of the runs, 5 %")
def test_the_noise_of_finished_runs_is_that_within_their_blocks():
    """Points differ by factors, the machine drifts by 30 %: neither is noise within a block."""
    rng = np.random.default_rng(15)
    drift = np.exp(rng.normal(0, 0.3, 12))
    runs = pd.DataFrame([
        {"gpus": gpus, "block": block, "status": "ok",
         "runtime_s": 100 / gpus * drift[block] * math.exp(rng.normal(0, 0.05))}
        for gpus in (1, 2, 4, 8) for block in range(12)
    ])  # fmt: skip
    found = noise_of_runs.estimate_noise(runs)
    assert found.deviation == pytest.approx(0.05, rel=0.3) and found.runs == 48
    two = runs[runs["gpus"] < 4]  # of two points, each block but the first has a degree of freedom
    assert [noise_of_runs.estimate_noise(two[two["block"] < blocks]).runs for blocks in (5, 6)] == [0, 12]
    later = runs[runs["gpus"] >= 4].assign(block=lambda frame: frame["block"] + 12)
    assert noise_of_runs.estimate_noise(pd.concat([two, later])).runs == 48, "each with the points of its blocks"
    assert noise_of_runs.estimate_noise(runs[runs["gpus"] == 1]) == noise_of_runs.ASSUMED, "nothing to compare it with"
    assert noise_of_runs.ASSUMED.words == "2 % (assumed)" and found.words.endswith(" % (measured in 48 runs)")


@pytest.mark.case("power-in-the-plan", source="keras-team/keras-tuner #1018", right="80 % of simulated studies")
@pytest.mark.parametrize(("blocks", "noise"), [(3, 0.02), (6, 0.05)])
def test_the_plan_names_the_difference_that_its_findings_find(blocks, noise, monkeypatch):
    monkeypatch.setattr(declaration, "load_finding", lambda name: declared())
    study = dataclasses.replace(study_of({**GRID, "repeats": blocks}), findings=("test",))
    measured = noise_of_runs.Noise(noise, 30)
    told = plan.summarize(study, machine.load("local"), noise=measured)
    (line,) = [line for line in told.splitlines() if line.startswith("  findings: ")]
    assert f"with {blocks} blocks, if runs of a block differ by {100 * noise:.0f} % (measured in 30 runs)" in line
    least = 1 + float(line.split("a difference of ")[1].split(" %")[0]) / 100
    rng = np.random.default_rng(16)
    values = math.log(least) + noise * (rng.standard_normal((8000, blocks)) - rng.standard_normal((8000, blocks)))
    found, _ = missed(values)
    assert found == pytest.approx(0.8, abs=0.03)


@pytest.mark.case("optional-stopping-of-a-figure", source="our own", right="the runs of its table")
def test_the_figure_of_a_table_with_a_verdict_shows_its_runs(tmp_path):
    study = tuned_study(6)
    runs = tuned_runs(study, lambda arm, block: 0.1 / (1.1 if arm == "xla" else 1) + 0.0001 * block)
    folder = tmp_path / "local" / "studies" / "test"
    early = runs[runs["block"] <= 3]
    first_verdicts.write(folder, "table_tuning", first_verdicts.add_verdicts(early, list(early["record"]), {}))
    inputs = Inputs(runs, "test", tmp_path / "local")
    FIGURES["tuning"].draw(load_description("tuning"), inputs, tmp_path / "f.svg", tmp_path / "f.pdf")
    drawn = (tmp_path / "f.svg").read_text()
    assert "3 blocks" in drawn and "6 blocks" not in drawn


@pytest.mark.case("ties-of-whole-epochs", source="our own", right="no verdict before six equal blocks")
@pytest.mark.parametrize(("blocks", "verdict"), [(3, "not_enough_runs"), (5, "not_enough_runs"), (6, "yes")])
def test_equal_counts_of_epochs_are_no_certainty(blocks, verdict):
    """Three epochs to the target instead of four, in every block: without scatter the interval has no width."""
    study = study_of({**GRID, "repeats": blocks})
    epochs = {"epochs_to_target": lambda run: 3.0 if run["loader"] == "chunked" else 4.0,
              "target_reached": lambda run: True}  # fmt: skip
    runs = rows(study, lambda run: 1.0, **epochs)
    found = outcome.judge_finding(declared(quantity={"column": "epochs_to_target"}), study, runs)
    assert found.verdict == verdict
    assert ("a verdict without any scatter needs 6 blocks" in found.sentence) == (verdict != "yes")
