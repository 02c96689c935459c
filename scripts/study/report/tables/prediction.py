"""Tables of predictions, of how well held-out measurements are predicted, and of a recommendation for a goal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import rank_answer
from study.core.csv_files import stack_tables
from study.core.wording import format_count, format_significant
from study.experiment import programs
from study.experiment.parameters import PARAMETERS
from study.machines.host_capabilities import Capacity
from study.prediction import published
from study.prediction.answers import Answer
from study.prediction.check import check_held_out
from study.prediction.goals import Goal
from study.prediction.recommend import (
    FARTHEST,
    LEAST_NARROWING,
    NOT_TRUSTED,
    derive_quantities,
    find_next_measurement,
    recommend,
)
from study.prediction.runtime_model import compute_interval
from study.prediction.settings import SERIES
from study.records.names import split_records
from study.report.tables.declared import load_verb_table, make_verb_table
from study.report.tables.layout import Table
from study.workloads import command

IDENTITY = ("machine", *(name for name in PARAMETERS if name not in ("gpus", "repeat")), "ranks", "quantity")
QUANTITIES = ("mean_epoch_s", "load_s", "other_s")


def prediction_table(answers: Iterable[Answer]) -> Table:
    """One row per workload, rank count and quantity: predicted low, median and high, and the measured mean."""
    rows = [row for answer in answers for series in answer.predictions for row in _list_predictions(answer, series)]
    columns = [*_columns(), *load_verb_table("prediction")["columns"][7:], "records"]
    return make_verb_table("prediction", pd.DataFrame(rows, columns=columns), _notes(answers), IDENTITY)


def _columns() -> list[str]:
    """The names of the columns that say of which runs a prediction is."""
    return ["machine", *(name for name in PARAMETERS if name not in ("gpus", "repeat"))]


def _labels(answer: Answer, series: tuple[Any, ...]) -> dict[str, Any]:
    """{column: value} of a prediction's workload and series. series: values of `SERIES`."""
    return {**answer.workload, **dict(zip(SERIES, series, strict=True))}


def _list_predictions(answer: Answer, series: tuple[Any, ...]) -> Iterable[dict[str, Any]]:
    """Yield the rows of a series: one per rank count and quantity, with the measured mean. series: as of `_labels`."""
    prediction = answer.predictions[series]
    derived = derive_quantities(prediction.settings, prediction.draws, None)
    draws = {**{name: prediction.draws[name] for name in QUANTITIES if name in prediction.draws}, **derived}
    if "power_per_rank_w" in prediction.draws:
        draws["power_per_rank_w"] = prediction.draws["power_per_rank_w"]
    here = answer.observations[(answer.observations[SERIES] == list(series)).all(axis=1)].set_index("ranks")
    for place, ranks in enumerate(prediction.settings["ranks"].astype(int)):
        for name, values in draws.items():
            low, median, high = compute_interval(values[place])
            yield {
                **_labels(answer, series),
                "ranks": ranks,
                "ratio_to_largest": ranks / prediction.largest,
                "quantity": name,
                "predicted_low": low,
                "predicted_median": median,
                "predicted_high": high,
                "measured": here[name].get(ranks, np.nan) if name in here else np.nan,
                "records": here["records"].get(ranks),
            }


def check_table(answers: Iterable[Answer]) -> Table:
    """One row per held-out point: measured runtime, its prediction without that count, and two naive fits."""
    frames = [check_held_out(answer.held_out).assign(**answer.workload) for answer in answers if answer.held_out]
    frame = stack_tables(frames) if frames else pd.DataFrame(columns=["ranks"])
    return make_verb_table("prediction_check", frame, _verdict(frame), IDENTITY)


def _verdict(frame: pd.DataFrame) -> list[str]:
    """How often the interval held, and whether a naive fit was better."""
    if "error" not in frame or frame.empty:
        return ["too few rank counts to hold one out"]
    notes = []
    for how, rows in (("largest", frame[frame["ratio_to_largest"] > 1]), ("each", frame)):
        if rows.empty:
            continue
        inside = int(rows["within_interval"].sum())
        rms = {
            name: float(np.sqrt((rows[name] ** 2).mean()))
            for name in ("error", "naive_linear_error", "naive_log_error")
        }
        best = min(rms, key=lambda name: rms[name])
        naive_verdict = "no naive fit is better" if best == "error" else f"{best.removesuffix('_error')} is better here"
        notes.append(
            f"held out {how}: {inside} of {len(rows)} within the 90 % interval; RMS error {rms['error']:.1%}, "
            f"naive_linear {rms['naive_linear_error']:.1%}, naive_log {rms['naive_log_error']:.1%}: {naive_verdict}"
        )
    return notes


def recommendation_table(answers: Iterable[Answer], goal: Goal) -> Table:
    """One row per workload, series and candidate count; the notes have the recommendations in sentences."""
    frames, notes = [], []
    for answer in answers:
        for series, prediction in answer.predictions.items():
            if len(prediction.settings) < 2:
                continue
            doubts = [misfit for each in answer.misfits.values() for misfit in each]
            result = recommend(prediction, goal, answer.failures.get(series), doubts)
            frames.append(result.candidates.assign(**_labels(answer, series)))
            where = f"{answer.name}, {_series_words(answer, series)}"
            notes.append(f"{where}: {result.reason}{_not_carried(result.pick, answer.carried)}")
            notes += [f"{where}: {line}" for line in _next(result.candidates, goal.minimise, answer.carried)]
    frame = stack_tables(frames) if frames else pd.DataFrame(columns=["ranks"])
    objective = [f"predicted_{goal.minimise}{end}" for end in ("", "_low", "_high")]
    limited = [f"predicted_{limit.quantity}" for limit in goal.limits]
    predicted = dict.fromkeys(["predicted_runtime_s", *objective, *limited])
    columns = load_verb_table("recommendation")["columns"]
    place = columns.index("probability_of_limits")
    return make_verb_table(
        "recommendation", frame, notes + _notes(answers), IDENTITY, [*columns[:place], *predicted, *columns[place:]],
        goal=goal, farthest=FARTHEST,
    )  # fmt: skip


def describe_next_doublings(answers: Iterable[Answer], measured: Iterable[rank_answer.Answer]) -> Iterator[str]:
    """What is predicted of twice as many ranks as the largest measured number, where the measured ones deserve it."""
    deserved = {record: each.ranks for each in measured for record in each.records}
    for answer in answers:
        for series, prediction in answer.predictions.items():
            here, counts = prediction.observations, list(prediction.settings["ranks"])
            largest = int(here.index.max())
            if 2 * largest not in counts or deserved.get(split_records(here["records"][largest])[0]) != largest:
                continue
            efficiency = derive_quantities(prediction.settings, prediction.draws, None)["efficiency"]
            gains = compute_interval(2 * efficiency[counts.index(2 * largest)] / efficiency[counts.index(largest)])
            low, median, high = (format_significant(float(gain)) for gain in gains)
            yield (
                f"{answer.name}, {_series_words(answer, series)}: {2 * largest} ranks are predicted to get the work "
                f"done {median} times as fast as {largest} (90 % interval {low} to {high}), and were not measured"
            )


def _not_carried(pick: int | None, carried: Capacity | None) -> str:
    """That the recommended count is more than the machine carries, as a further sentence; empty if it is not."""
    if pick is None or carried is None or pick <= carried.ranks:
        return ""
    return f". This machine carries {carried.words}: {pick} would share its {carried.shared}" if carried.shared else ""


def _next(candidates: pd.DataFrame, minimised: str, carried: Capacity | None) -> Iterator[str]:
    """The measurement to make next, of those that the machine carries, or that none is worth it."""
    best = find_next_measurement(candidates)
    if best is None:
        return
    here = find_next_measurement(candidates, carried.ranks if carried else None)
    if here is not None and here["narrows_interval_by"] >= LEAST_NARROWING:
        yield (
            f"next, measure on {format_count(here['ranks'], 'rank')} ({here['predicted_node_hours']:.3g} node-hours "
            f"predicted); it is expected to narrow the interval of {minimised} by {here['narrows_interval_by']:.0%}"
        )
        return
    nothing = f"is expected to narrow the interval of {minimised} by {LEAST_NARROWING:.0%} or more"
    if carried is None or best["narrows_interval_by"] < LEAST_NARROWING:
        yield f"no further measurement {nothing}"
        return
    yield (
        f"this machine carries {carried.words}, and no further measurement up to that {nothing}; on a larger machine, "
        f"one on {format_count(best['ranks'], 'rank')} is expected to narrow it by {best['narrows_interval_by']:.0%}"
    )


def _series_words(answer: Answer, series: tuple[Any, ...]) -> str:
    """A series in words, such as ``strong scaling, 384 epochs, batch size 20``; of a command only a batch it has."""
    values = dict(zip(SERIES, series, strict=True))
    words = f"{values['scaling']} scaling, {format_count(values['epochs'], 'epoch')}"
    if answer.workload["loader"] != programs.NOTHING or values["batch_size"] != command.ABSENT["batch_size"]:
        words += f", batch size {values['batch_size']}"
    return words + (f", links of {values['link_mbit_per_s']} Mbit/s" if values["link_mbit_per_s"] else "")


def _describe_missing_model(answer: Answer) -> str:
    counts = ", ".join(map(str, sorted(answer.observations["ranks"].astype(int).unique())))
    count, carried = answer.to_measure, answer.carried
    advice = "the machine and the study allow no others"
    if count is not None and carried and count > carried.ranks:
        advice = f"this machine carries {carried.words}, so measure on {count} ranks on a larger one"
    elif count is not None:
        advice = f"measure on {format_count(count, 'rank')} too"
    return f"{answer.name}: no prediction, for which two rank counts are needed; measured on {counts}; {advice}"


def _misfits(answer: Answer) -> Iterable[str]:
    """A line for each series with measurements that the model does not fit."""
    for series, wrong in answer.misfits.items():
        yield (
            f"{answer.name}, {_series_words(answer, series)}: {NOT_TRUSTED}, so only measured counts can be "
            f"recommended: {'; '.join(each.words for each in wrong)}"
        )


def _single_counts(answer: Answer) -> Iterable[str]:
    """A line for each series of a predicted workload whose time per epoch was measured on one rank count only."""
    if answer.model is not None:
        for series in sorted(answer.candidates.keys() - answer.predictions.keys(), key=str):
            where = f"{answer.name}, {_series_words(answer, series)}"
            yield f"{where}: measured on one rank count, so nothing is predicted; measure on another one too"


def _notes(answers: Iterable[Answer]) -> list[str]:
    """Workloads without a prediction, modelled power, times that mix two things, and runs of older code."""
    notes = [_describe_missing_model(answer) for answer in answers if answer.model is None]
    notes += [line for answer in answers for line in (*_misfits(answer), *_single_counts(answer))]
    if any(answer.energy_source == "modelled" for answer in answers):
        notes.append(
            "energy is predicted from power that was modelled from CPU utilisation (power_model), not measured"
        )
    if any(answer.of_gpus for answer in answers):
        notes.append(
            "energy_job_j, and all that is predicted from it, is the energy of the GPUs only: no run has the energy of "
            "its whole job"
        )
    notes += [
        f"{answer.name}: times per epoch include an unknown part of the first epoch's overhead, as the epochs of a "
        "rank change with the ranks and no run has a steady time per epoch: predictions take it for a cost of more "
        "ranks; measure one of these counts with another number of epochs"
        for answer in answers
        if answer.model and answer.model.is_mixed
    ]
    if any(not answer.observations["code_is_current"].all() for answer in answers):
        notes.append("some of the measured runs are of another version of the code")
    return notes


def _define_published_table(paper: str) -> kinds.Make:
    """A function that makes the table ``PAPER_prediction``; it needs no runs."""

    def make(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
        """One row per published point and quantity, the fitted ones too."""
        frame = published.predict_paper(paper)
        made = make_verb_table("published_prediction", frame, _errors(frame), paper=paper)
        return dataclasses.replace(made, name=f"{paper}_prediction")

    return make


def _errors(frame: pd.DataFrame) -> list[str]:
    """RMS and worst error of each quantity beyond the fit, and how often the interval holds."""
    notes = []
    for name, rows in frame[~frame["fitted"]].groupby("quantity", sort=False):
        worst = rows.loc[rows["error"].abs().idxmax()]
        sentence = (
            f"{name} beyond the fit: RMS error {np.sqrt((rows['error'] ** 2).mean()):.1%}, worst {worst['error']:+.1%}"
        )
        if name != published.GIVEN:
            sentence += f" on {format_count(worst['ranks'], 'rank')}, "
            sentence += f"{int(rows['within_interval'].sum())} of {len(rows)} in the interval"
        notes.append(sentence)
    return notes


for _paper in published.list_papers():
    kinds.table(
        f"{_paper}_prediction",
        title=f"Published points of {_paper}, predicted from its smaller rank counts",
        look_for="How far predictions from small counts can be trusted: the error and the interval at larger ones.",
        needs="nothing",
        is_there=lambda study: True,
    )(_define_published_table(_paper))
