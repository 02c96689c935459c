"""What the runs of a study that are still to do are expected to take, from those that are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from study.core.errors import StudyError
from study.core.wording import format_count, format_significant
from study.experiment.parameters import is_observed
from study.experiment.study import PlannedRun
from study.prediction import settings
from study.prediction.answers import Answer, answer_workloads, get_series_key, get_workload_key
from study.prediction.recommend import FARTHEST
from study.prediction.runtime_model import Prediction, compute_interval, predict
from study.prediction.scaling_model import SEED
from study.records.tidy import name_training_code, runs_frame, split_ended_runs

NEAR = 2  # times the largest measured count


def forecast(runs: Sequence[PlannedRun], folder: str, machine: dict[str, Any]) -> list[str]:
    """Lines for the plan; empty as long as no run is done or none is left.

    Expected node-hours and energy of the runs to do, with 90 % intervals, and how far they are from measured counts.
    Only the workloads of these runs are read and fitted. folder: the machine's results folder.
    """
    ended_runs, remaining_runs = split_ended_runs(runs, folder)
    if not ended_runs or not remaining_runs:
        return []
    wanted = {get_workload_key(run) for run in remaining_runs if is_observed(run, None)}
    ended_runs = [run for run in ended_runs if get_workload_key(run) in wanted]
    try:
        frame = runs_frame(ended_runs, {name_training_code(run.parameters): "" for run in ended_runs}, folder)
        answers = list(answer_workloads(settings.select_runs(frame).used, {}, machine))
        return list(_format_lines(remaining_runs, answers, machine))
    except StudyError as error:
        return [f"  Expected: nothing can be predicted: {error}"]


def _format_lines(
    remaining_runs: Sequence[PlannedRun], answers: list[Answer], machine: dict[str, Any]
) -> Iterator[str]:
    distances: Counter[str] = Counter()
    hours, energies = [], []
    by_workload = {get_workload_key(each.workload): each for each in answers if each.model}
    predictions: dict[tuple[Any, ...], Prediction] = {}  # repeats share a point's prediction
    rng = np.random.default_rng(SEED)
    for run in remaining_runs:
        answer = by_workload.get(get_workload_key(run)) if is_observed(run, None) else None
        point = (*get_series_key(run), run.gpus)
        if answer and answer.model and point not in predictions:
            series = pd.Series({**answer.observations.iloc[0], **{name: run[name] for name in settings.SERIES}})
            setting = settings.derive_settings_at_counts(series, [run.gpus], machine["ranks_per_node"])
            if answer.model.has_series(setting):
                predictions[point] = predict(answer.model, setting)
        if answer is None or point not in predictions:
            distances["cannot be predicted"] += 1
            continue
        if any(each.quantity == "runtime_s" for wrong in answer.misfits.values() for each in wrong):
            distances["cannot be predicted, since the model does not fit what was measured"] += 1
            continue
        prediction = predictions[point]
        ratio = run.gpus / prediction.largest
        far = f"within {FARTHEST} times" if ratio <= FARTHEST else f"beyond {FARTHEST} times (unreliable)"
        distances[f"within {NEAR} times the largest measured count" if ratio <= NEAR else far] += 1
        nodes = -(-run.gpus // machine["ranks_per_node"])
        hours.append(nodes * draw_single_run(prediction, "runtime_s", rng) / 3600)
        if "energy_job_j" in prediction.draws:
            energies.append(draw_single_run(prediction, "energy_job_j", rng) / 3.6e6)
    distance_words = ", ".join(f"{number} {words}" for words, number in distances.items())
    runs = format_count(len(remaining_runs), "run")
    yield f"  Expected for {runs} to do, predicted from {len(answers)} of their workloads: {distance_words}"
    if hours:
        part = f" by {len(energies)} of these runs" if len(energies) < len(hours) else ""
        joules = f", {_format_interval(energies)} kWh{part}" if energies else ""
        yield f"    {_format_interval(hours)} node-hours{joules}"


def draw_single_run(prediction: Prediction, quantity: str, rng: np.random.Generator) -> np.ndarray:
    """Draws of one run: what is uncertain about the mean is the same for all runs, their own noise is not."""
    mean = prediction.means[quantity][0]
    return mean + rng.permutation(prediction.draws[quantity][0] - mean)


def _format_interval(draws: list[np.ndarray]) -> str:
    low, median, high = (format_significant(float(value)) for value in compute_interval(np.sum(draws, axis=0)))
    return f"{median} ({low} to {high})"
