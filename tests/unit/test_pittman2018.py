"""The Pittman paper: what follows from its printed numbers, and its tables beside runs with known numbers."""

import math

import pandas as pd
import pytest

from study import plan
from study.experiment import expansion
from study.experiment.ensemble import is_ensemble
from study.machines import machine
from study.report import sources
from study.report.papers.declaration import load_paper
from study.report.papers.pittman2018 import RUNTIME
from study.report.tables import TABLES
from study.report.tables.published_values import read_published

NOTHING = pd.DataFrame()


def claims_of(runs=NOTHING):
    return TABLES["pittman2018_claims"].make(runs, NOTHING).frame


def claim(runs, quantity, benchmark=None):
    table = claims_of(runs)
    rows = table[table["quantity"] == quantity]
    (row,) = (rows[rows["benchmark"] == benchmark] if benchmark else rows[rows["benchmark"].isna()]).itertuples()
    return row


# The paper's numbers


@pytest.mark.parametrize(
    ("quantity", "benchmark", "expected", "digits"),
    [
        ("parameters of the network that was trained", "alexnet", 50_303_912, 0),
        ("power above idle saved by all_shared", "alexnet", 15.8, 1),
        ("power saved by all_shared", "alexnet", 6.6, 1),
        ("power saved per node in use", "alexnet", 27.1, 1),
        ("training time on one core: duplicated / all_shared", "alexnet", 9.45, 2),
        ("training rate of one member", "alexnet", 226.1, 1),
        ("r_c: rate at which a member computes", "alexnet", 342.6, 1),
        ("r_p: rate at which one rank preprocesses on one core", "alexnet", 23.5, 1),
        ("preprocessing ranks that reach r_c", "alexnet", 2, 0),
        ("training time: Welch's t of 1,000 nodes and solo", "alexnet", 0.47, 2),
        ("the same: largest t that fits the printed digits", "alexnet", 0.95, 2),
        ("idle power / highest power of the cabinet", None, 57.9, 1),
        ("highest power / (2^15 - 1) W", None, 1, 6),
        ("nodes for jobs in the cabinet", None, 88, 0),
    ],
)
def test_derived_numbers_without_any_run(quantity, benchmark, expected, digits):
    row = claim(NOTHING, quantity, benchmark)
    assert round(row.published_value, digits) == pytest.approx(expected)
    assert math.isnan(row.value) and row.missing and row.follows_from


def test_table_1_shows_no_difference():
    row = claim(NOTHING, "training time: 1,000 nodes less solo, with its 95 % interval", "alexnet")
    assert row.published_lowest < 0 < row.published_highest
    assert "no difference shown" in TABLES["pittman2018_table1"].make(NOTHING, NOTHING).markdown()


def test_table_5_closes_with_the_idle_power_of_table_4():
    table = read_published("pittman2018_table5_power.csv")
    idle_w = load_paper("pittman2018").published.number("idle_w")
    assert (table["cabinet_w"] - table["cabinet_above_idle_w"] == idle_w).all()


def test_the_range_of_the_abstract_is_that_of_the_networks_rounded():
    """2-11X less CPU time in the abstract; 10.8, 3.5 and 2.4 in section VI-B."""
    of_all = claim(NOTHING, "CPU time: duplicated / all_shared, of all networks", None)
    each = read_published("pittman2018_text.csv").query("measure == 'cpu_usage_reduction'")["high"]
    assert (of_all.published_lowest, of_all.published_highest) == (round(each.min()), round(each.max())) == (2, 11)


@pytest.mark.parametrize(
    ("name", "file", "columns"),
    [
        ("pittman2018_table1", RUNTIME, ["times", "mean_s", "std_s", "min_s", "max_s"]),
        ("pittman2018_table2", "pittman2018_table2_networks.csv", ["batch_size", "layers", "parameters"]),
        ("pittman2018_table3", "pittman2018_table3_one_core.csv", ["slowdown"]),
        ("pittman2018_table4", "pittman2018_table4_cabinet.csv", ["idle_w", "idle_variance_w2", "highest_w"]),
        ("pittman2018_table5", "pittman2018_table5_power.csv", ["cabinet_w", "cabinet_above_idle_w", "savings_pct"]),
    ],
)
def test_every_published_cell_is_shown_without_runs(name, file, columns):
    table = TABLES[name].make(NOTHING, NOTHING)
    for column in columns:
        found = table.frame[f"published_{column}"].dropna()
        assert sorted(found) == sorted(read_published(file)[column].dropna())
        assert f"published_{column}" in table.shown_columns


# The machine


# From runs

SHARED = {"input_sharing": "all_shared"}


def made(name, runs):
    return TABLES[name].make(runs, NOTHING)


def test_table_1_from_runs(ensembles):
    """Four members on one machine. An ordinary run has another pipeline and is no member alone."""
    alone = {"ensemble": 1, "gpus": 1, "members": "[{}]", "makespan_s": [10.0, 12.0, 14.0]}
    ordinary = {"ensemble": 1, "gpus": 1, "train_s": [1.0, 1.0, 1.0]}
    table = made("pittman2018_table1", ensembles(ordinary, alone, {"makespan_s": [20.0, 24.0, 28.0]}))
    rows = table.frame.set_index("ensemble")
    four = rows.loc[4]
    assert (four.mean_s, four.std_s, four.min_s, four.max_s) == (24, 4, 20, 28)
    assert (four.over_solo, four.over_solo_low, four.over_solo_high) == pytest.approx((2, 2, 2))
    assert rows.loc[[1]]["over_solo"].isna().all()
    assert four.ratio_reason == "no published value" and rows.loc[1000].published_mean_s == 1132.2


def test_table_3_from_runs(ensembles):
    few = {"core_limit": 1}
    table = made(
        "pittman2018_table3",
        ensembles(
            {"makespan_s": [10.0, 20.0]}, {**few, "makespan_s": [96.1, 192.2]},
            {**SHARED, "makespan_s": [6.6, 13.2]}, {**SHARED, **few, "makespan_s": [10.164, 20.328]},
        ),
    )  # fmt: skip
    rows = table.frame[table.frame["benchmark"] == "nt3"].set_index("input_sharing")
    assert rows["slowdown"].to_dict() == pytest.approx({"duplicated": 9.61, "all_shared": 1.54})
    assert rows["slowdown_low"].to_dict() == pytest.approx({"duplicated": 9.61, "all_shared": 1.54})
    assert len(table.frame) == 2 + 6, "every published row"
    assert rows["not_stated"].str.contains("cycle time").all() and rows["not_stated"].nunique() == 1


def test_table_5_saves_of_the_whole_power(ensembles):
    powers = {"power_source": "measured", "power_reason": None}
    runs = ensembles(
        {**powers, "node_power_w": [100.0, 200.0]}, {**powers, **SHARED, "node_power_w": [93.4, 186.8]},
        {"compute": "simulated", "node_power_w": [1.0, 1.0]},
    )  # fmt: skip
    table = made("pittman2018_table5", runs)
    rows = table.frame[table.frame["benchmark"] == "nt3"].set_index("input_sharing")
    assert len(rows) == 2, "none with a simulated accelerator"
    assert rows.loc["all_shared"].saved_pct == pytest.approx(6.6)
    assert rows.loc["all_shared"].saved_pct_low == pytest.approx(6.6)
    assert pd.isna(rows.loc["duplicated"].saved_pct)
    mixed = runs.assign(power_source=["measured", "measured", "modelled", "modelled", "measured", "measured"])
    assert made("pittman2018_table5", mixed).frame["saved_pct"].isna().all(), "measured and modelled are not compared"
    assert made("pittman2018_table4", runs).frame["highest_node_power_w"].max() == 200


@pytest.mark.slow
def test_without_a_power_sensor_the_columns_are_empty(ensembles):
    table = made("pittman2018_table5", ensembles({"node_power_w": None}, {**SHARED, "node_power_w": None}))
    assert table.frame["saved_pct"].isna().all()
    assert "missing power or energy: no power sensor here" in table.markdown()


@pytest.mark.slow
def test_claims_from_runs_by_the_same_formula(ensembles):
    alexnet = {"benchmark": "alexnet", "dataset": "synthetic"}
    runs = ensembles(
        {**alexnet, "ranks_cpu_s": [108.0, 216.0]}, {**alexnet, **SHARED, "ranks_cpu_s": [10.0, 20.0]},
        {**alexnet, "compute": "simulated", "ranks_cpu_s": [1.0, 1.0]},
        {**alexnet, "measure": "compute_throughput", "compute_samples_per_s": [300.0, 310.0]},
    )  # fmt: skip
    row = claim(runs, "CPU time: duplicated / all_shared", "alexnet")
    assert (row.value, row.low, row.published_highest) == (pytest.approx(10.8), pytest.approx(10.8), 10.8)
    assert math.isnan(row.published_value), "the paper's number is its highest, so no mean stands beside it"
    assert (row.pairing, row.repeats) == ("paired", 2)
    assert "training images 100 instead of 1300000" in row.workload_difference
    assert claim(runs, "r_c: rate at which a member computes", "alexnet").value == 305
    absent = claim(runs, "training time on one core: duplicated / all_shared", "alexnet")
    assert absent.missing == "makespan_s of these runs: not measured"


@pytest.mark.slow
def test_numbers_of_preprocessing_ranks_are_experiments_of_their_own(ensembles):
    """One rank preprocesses for twice, two for four times the CPU time of all_shared: neither stands for both."""
    alexnet, few = {"benchmark": "alexnet", "dataset": "synthetic"}, {"input_sharing": "concurrent_broadcast"}
    runs = ensembles(
        {**alexnet, **SHARED, "ranks_cpu_s": [10.0, 20.0]},
        {**alexnet, **few, "preprocessing_ranks": 1, "ranks_cpu_s": [20.0, 40.0]},
        {**alexnet, **few, "preprocessing_ranks": 2, "ranks_cpu_s": [40.0, 80.0]},
    )
    row = claim(runs, "CPU time: concurrent_broadcast / all_shared", "alexnet")
    assert (row.value, row.lowest, row.highest, row.series) == (pytest.approx(3), pytest.approx(2), pytest.approx(4), 2)


@pytest.mark.slow
def test_a_difference_has_an_interval_only_if_its_arms_ran_in_turn(ensembles):
    alexnet = {"benchmark": "alexnet", "dataset": "synthetic", "power_source": "measured"}
    for session, pairing, has in (("s", "paired", True), ("other", "unpaired", False)):
        runs = ensembles(
            {**alexnet, "session": "s", "node_power_w": [200.0, 210.0, 220.0]},
            {**alexnet, **SHARED, "session": session, "node_power_w": [180.0, 190.0, 199.0]},
        )
        row = claim(runs, "power saved per node in use", "alexnet")
        assert (row.value, row.pairing) == (pytest.approx(61 / 3), pairing)
        assert math.isnan(row.low) != has


# Figures


# The studies


@pytest.mark.parametrize("name", ["pittman2018", "pittman2018_laptop"])
def test_members_and_one_alone_have_one_pipeline(name):
    """All runs of these studies are trained as ensembles; an ordinary run has no order that members share."""
    study = expansion.load_study(name)
    assert all(is_ensemble(run.parameters) for run in study.runs)
    alone = [run for run in study.runs if run["ensemble"] == 1 and run["measure"] == "train"]
    assert {run["members"] for run in alone} == {"[{}]"}


@pytest.mark.parametrize("name", ["pittman2018", "pittman2018_laptop"])
def test_each_table_and_figure_has_runs(name):
    study = expansion.load_study(name)
    plan.check_results(study)
    for figure in study.figures:
        assert sources.select_figure_sources(study, figure).runs, figure


def test_the_study_has_the_papers_broadcasts_and_one_pipeline():
    """Multi-Broadcast is asynchronous (section IV-E); Figures 2 and 3 are of one pipeline (section III-C1)."""
    study, titan = expansion.load_study("pittman2018"), machine.load("titan")
    ways = {run["input_sharing"] for run in study.runs}
    assert "concurrent_broadcast" in ways and "multi_broadcast" not in ways
    for figure in ("pittman2018_figure2", "pittman2018_figure3"):
        drawn = sources.select_figure_sources(study, figure).runs
        assert {(run["ensemble"], run["members"], run["benchmark"]) for run in drawn} == {(1, "[{}]", "alexnet")}
    assert not [line for line in plan.list_refusals(study, titan) if "input_sharing" in line]
