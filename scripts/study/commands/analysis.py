"""The verbs that judge what was measured: recommend, predict, tune and check."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.commands.options import (
    COUNT,
    GOAL,
    PATH,
    RATE,
    OneOf,
    Parsed,
    complete_path,
    goal_option,
    load_contrib,
    load_study_on,
    study_options,
    verb,
)
from study.core import paths
from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.compare import rank_answer

MEANINGS = "fixed (strong scaling), per_rank (weak scaling, as a fixed batch per GPU) or epochs (the papers': divided)"


@verb("recommend", "How many GPUs does a job of a study deserve?", page="docs/prediction.md")
@study_options
@click.option("--goal", type=GOAL, metavar="NAME", help="another goal, of config/prediction/goals")
@click.option("--output", metavar="PATH", help="a folder; by default in the study's results")
def recommend(study: str, machine: str, results_dir: str, goal: str | None, output: str | None) -> None:
    """Say how many ranks a job deserves by what was measured, as the report does, and predict other rank counts.

    With a goal, also recommend a count for that, which may be another one. Reads the run records that exist; starts
    nothing. Missing runs are counted.
    """
    from study.report import terminal

    measured, predictions, folder = predict_study(study, machine, results_dir, goal, output)
    print(*terminal.format_answers(measured), *predictions, f"Tables and figure: {folder}", sep="\n")


def predict_study(
    study: str, machine: str, results_dir: str, goal: str | None, output: str | None
) -> "tuple[list[rank_answer.Answer], list[str], Path]":
    """(answers by what was measured, lines about other rank counts, folder of the tables and the figure)."""
    import dataclasses

    from study.compare import rank_answer
    from study.core import configuration, installed
    from study.core.wording import format_count
    from study.machines import host_capabilities
    from study.prediction import goals
    from study.prediction.answers import answer_workloads, get_series_key
    from study.prediction.settings import select_runs
    from study.records.tidy import current_code, runs_frame, split_ended_runs
    from study.report.tables.kinds import with_own_keys
    from study.report.tables.prediction import (
        check_table,
        describe_next_doublings,
        prediction_table,
        recommendation_table,
    )

    aim = goals.load(goal) if goal else None
    planned, settings = load_study_on(machine, study)
    results = Path(results_dir) / settings["name"]
    folder = Path(output or f"{paths.locate_study(results, planned.name)}/recommendation/{aim.name if aim else ''}")
    if results_dir != configuration.load_settings()["results_dir"] and not Path(results_dir).is_dir():
        raise StudyError(f"--results-dir: there is no folder {results_dir}")
    finished, missing = split_ended_runs(planned.runs, results)
    reads_targets = any(run.dataset.target for run in finished)
    runs = runs_frame(finished, current_code(planned.runs, settings), results, reads_targets=reads_targets)
    selection = select_runs(runs)
    counts: dict[Any, list[int]] = {}
    for run in planned.runs:
        counts.setdefault(get_series_key(run), []).append(run.gpus)
    answered = list(
        answer_workloads(selection.used, counts, settings, selection.failed, host_capabilities.find_capacity(settings))
    )
    notes = [f"{format_count(number, 'run')} left out: {reason}" for reason, number in selection.left_out.items()]
    if missing:
        notes.append(f"{format_count(len(missing), 'run')} of the study without a record yet")
    notes += selection.problems
    tables = [recommendation_table(answered, aim)] if aim else []
    tables += [prediction_table(answered), check_table(answered)]
    for table in tables:
        whole = with_own_keys(dataclasses.replace(table, notes=[*table.notes, *notes]), runs)
        dataclasses.replace(whole, caption=f"study {planned.name}: {whole.caption}").write_to(folder)
    if missing_figures := installed.warn_of_missing_figures():
        notes += missing_figures
    else:
        from study.report.figures import prediction_drawing
        from study.report.figures.drawing import write_figure

        data = prediction_drawing.select(answered, planned.name, settings["name"])
        write_figure(prediction_drawing.draw, data, folder / "prediction_curves.svg", folder / "prediction_curves.pdf")
    measured = list(rank_answer.answer_workloads(runs))
    question = [f"another question, goal {aim.name}: {aim.description}"] if aim else []
    nothing = [] if answered else ["no usable run: measure at least two rank counts of a workload"]
    lines = (*describe_next_doublings(answered, measured), *question, *nothing, *tables[0].notes, *notes)
    title = f"\nPredictions for study {planned.name} on {settings['name']}:"
    return measured, [title, *(f"- {line}" for line in lines)], folder


def parse_counts(text: str) -> list[int]:
    """Whole numbers of at least 1, with commas; raises `ValueError` for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", part) and int(part) for part in parts):
        raise ValueError(f"{text!r} must be rank counts such as 64,128,256")
    return sorted({int(part) for part in parts})


@verb("predict", "How many GPUs, from times in a CSV file or in logs?", page="docs/prediction.md", reads_workflow=False)
@click.argument("points", nargs=-1, required=True, metavar="POINTS.csv...", shell_complete=complete_path)
@click.option(
    "--work",
    type=OneOf("study.prediction.points", "WORKS"),
    metavar="WORK",
    help="what is fixed: fixed, per_rank or epochs",
)
@click.option(
    "--predict", "counts", type=Parsed(parse_counts), metavar="COUNTS", help="such as 64,128; else three doublings"
)
@click.option("--ranks-per-node", type=COUNT, help="if the file has no column nodes")
@click.option("--unit", metavar="UNIT", help="of the throughput: images/s, tokens/s/GPU, ...")
@goal_option
@click.option("--price", type=RATE, help="price of a node-hour, in any currency; not the goal's")
@click.option("--amount", type=RATE, default=1.0, help="steps or epochs on the smallest count")
@click.option("--knee", type=RATE, default=0.5, help="least speedup of a doubling, minus 1")
@click.option("--grid", type=RATE, help="g CO2e per kWh of the electricity, for modelled emissions")
@click.option("--pue", type=RATE, default=1.0, help="power usage effectiveness of the centre")
@click.option("--output", type=PATH, metavar="PATH", help="a CSV file; the answer is written beside it too")
def predict(
    points: tuple[str, ...], work: str | None, counts: list[int] | None, ranks_per_node: int | None, unit: str | None,
    goal: str, price: float | None, amount: float, knee: float, grid: float | None, pue: float, output: Path | None,
) -> None:  # fmt: skip
    """Predict time at other rank counts from measured points in a CSV file, and recommend a count for a goal.

    POINTS.csv has the columns ranks and time_per_step_s, time_per_epoch_s, runtime_s or throughput. Starts nothing.
    """
    if work is None:
        raise click.UsageError(f"--work is required: {MEANINGS}")
    if pue < 1:
        raise click.UsageError(f"--pue: {pue:g} must be at least 1, the electricity that the machine itself takes")
    if knee > 1:
        raise click.UsageError(f"--knee: {knee:g} must be at most 1, a doubling that halves the time")
    import pandas as pd

    from study.core.files import write_aside, write_text
    from study.prediction import goals
    from study.prediction.series_answer import answer
    from study.report.series_text import to_markdown
    from study.report.tables.allocation import allocation_table

    aim = goals.load(goal, price)
    if output:
        refuse_output(output, points)
    all_series = load_contrib("readers.series_files").read_series_files(points, work, ranks_per_node, unit)
    answers = [answer(series, counts or [], aim, knee, amount) for series in all_series]
    text = to_markdown(answers)
    print(text)
    if not output:
        return
    with write_aside(output) as aside:
        pd.concat([each.predictions_in_unit() for each in answers], ignore_index=True).to_csv(aside, index=False)
    write_text(output.with_suffix(".md"), text)
    folder = output.parent / f"{output.stem}_allocation"
    from study.report.figures import series_drawing

    series_drawing.write_series_figure(
        answers, [output.with_suffix(".svg"), folder / "curves.svg", folder / "curves.pdf"]
    )
    allocation_table(answers, aim.price, amount, grid, pue, "curves").write_to(folder)
    print(f"Predictions, answer and curves: {output}, {output.with_suffix('.md')}, {output.with_suffix('.svg')}")
    if len(answers) > series_drawing.MOST_PANELS:
        print(f"The figure has the first {series_drawing.MOST_PANELS} of {len(answers)} series")
    print(f"Table for an allocation: {folder}")


def refuse_output(output: Path, points: Sequence[str]) -> None:
    """Raise `StudyError` for an output that is a folder, is written twice, or is read too."""
    if output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a CSV file is expected")
    if output.suffix in (".md", ".svg"):
        raise StudyError(f"--output: {output} must be a CSV file; the answer is written beside it, as .md and .svg")
    inputs = [Path(name) for name in points]
    if output.exists() and any(each.exists() and output.samefile(each) for each in inputs):
        raise StudyError(f"--output: {output} is one of the files with points; name another one")


@verb("tune", "Which setting of Horovod or TensorFlow is worth changing?", page="docs/tuning.md")
@study_options
@click.option(
    "--output", type=PATH, metavar="PATH", help="folder for the table; by default tuner, in the study's results"
)
@click.option("--needed", is_flag=True, help="print the missing records of the next stage, as targets for Snakemake")
def tune(study: str, machine: str, results_dir: str, output: Path | None, needed: bool) -> None:
    """Say which setting of a study is worth changing: picked by its screening blocks, confirmed by its held-out blocks.

    Reads the run records that exist; starts no run. Missing runs are counted.
    """
    from study.compare import arms, first_verdicts, noise_of_runs, tuner
    from study.core.wording import format_count
    from study.records.tidy import current_code, runs_frame, split_ended_runs
    from study.report.tables.kinds import with_own_keys
    from study.report.tables.tuning import describe_answer, is_compared, make_tuner_table

    planned, settings = load_study_on(machine, study)
    if not any(map(is_compared, planned.runs)):
        problem = "no grid has tuning, so there is no arm to pick; name a study with arms, or add some (docs/tuning.md)"
        raise StudyError(f"config/studies/{planned.name}.yaml: runs: {problem}")
    if reason := tuner.explain_too_few_blocks(planned):
        print(f"Warning: config/studies/{planned.name}.yaml: {reason}", file=sys.stderr)
    results = Path(results_dir) / settings["name"]
    finished, missing = split_ended_runs(filter(is_compared, planned.runs), results)
    runs = runs_frame(finished, current_code(planned.runs, settings), results)
    study_folder = Path(paths.locate_study(results, planned.name))
    earlier = first_verdicts.read(study_folder, "tuner")
    if needed:
        print(
            "\n".join(
                paths.locate_record(results, run.directory) for run in tuner.list_needed_runs(planned, runs, earlier)
            )
        )
        return
    answers = tuner.answer_baselines(planned, runs, earlier)
    if (verdicts := tuner.add_first_verdicts(answers, runs, earlier)) != earlier:
        first_verdicts.write(study_folder, "tuner", verdicts)
    folder = output or study_folder / "tuner"
    with_own_keys(make_tuner_table(planned, answers), runs).write_to(folder)
    print(f"Study {planned.name} on {settings['name']}, steady throughput against the baseline's.")
    for line in [line for answer in answers for line in describe_answer(answer, answers)]:
        print(f"- {line}")
    runs = arms.add_compared_columns(runs) if len(runs) else runs
    noise = noise_of_runs.estimate_noise(runs, arms.SPEED)
    print("\n".join(f"- {line}" for line in tuner.describe_power(planned, noise)))
    if missing:
        number = format_count(len(missing), "run")
        print(f"- {number} of baselines and arms without a record yet; --needed lists those of the next stage")
    print(f"Table: {folder}/tuner.md")


@verb(
    "check", "Is a study slower or less accurate than its references?", page="docs/performance-references.md",
    exit_codes="0 no regression, 1 regression, 2 error, such as an unknown study", finds_fault=True,
)  # fmt: skip
@study_options
@click.option("--output", type=PATH, metavar="PATH", help="a folder to write the table to")
@click.option("--accept", is_flag=True, help="make the latest repeats the reference")
@click.option("--only-report", is_flag=True, help="exit code 0 for a regression and for failures too")
def check(study: str, machine: str, results_dir: str, output: Path | None, accept: bool, only_report: bool) -> bool:
    """Compare the latest runs of a study with its performance references. Reads the records that exist; starts no run.

    More failures than in the reference are a regression too.
    """
    from study import plan
    from study.compare import first_verdicts, reference_check, references
    from study.core import validation
    from study.report.tables.check import check_table

    planned, settings = load_study_on(machine, study)
    name = settings["name"]
    plan.check_references(planned)
    results, file = Path(results_dir) / name, references.build_path(name, planned.name)
    accepted = references.read(file)
    reference_check.verify_accepted(accepted, planned, file)
    measured = reference_check.collect_series(planned, results, accepted)
    if not measured:
        print(
            f"study {planned.name} declares no references, and {validation.shorten_path(file)} has none: nothing to "
            "check"
        )
        return False
    folder = Path(paths.locate_study(results, planned.name))
    earlier = first_verdicts.read(folder, "check")
    if accept:
        _write_accepted(file, measured, accepted)
        _note_verdicts(folder, {}, earlier)  # another reference is another question
        return False
    measured = reference_check.drop_later_repeats(measured, earlier)
    rows = reference_check.compare_series(measured, accepted)
    _note_verdicts(folder, reference_check.add_first_verdicts(measured, rows, earlier), earlier)
    table = check_table(rows, planned.name, name)
    print(table.markdown())
    if output:
        table.write_to(output)
    regressions = int(rows["verdict"].isin(reference_check.FAILING).sum())
    summary = ", ".join(f"{number} {verdict}" for verdict, number in rows["verdict"].value_counts().items())
    print(f"study {planned.name} on {name}: {summary}")
    return regressions > 0 and not only_report


def _note_verdicts(folder: Path, verdicts: dict[str, Any], earlier: dict[str, Any]) -> None:
    """Note which runs had a verdict; a results folder that cannot be written to is only reported."""
    from study.compare import first_verdicts
    from study.core import validation

    if verdicts == earlier:
        return
    try:
        first_verdicts.write(folder, "check", verdicts)
    except OSError as error:
        print(f"Warning: {validation.shorten_path(folder)}: this check cannot be noted: {error}", file=sys.stderr)


def _write_accepted(file: Path, measured: list[Any], accepted: dict[tuple[str, str], Any]) -> None:
    """Write the new references; those that cannot be measured now stay."""
    from study.compare import failed_runs, reference_check, references
    from study.core import validation
    from study.report.tables.check import describe_verdicts

    new = list(reference_check.accept_series(measured, accepted))
    reasons = [(series, reference_check.explain_refusal(series, accepted.get(series.key))) for series in measured]
    refused = [(series, reason) for series, reason in reasons if reason]
    for series, reason in refused:
        is_of_failures = reason == reference_check.FAILURES
        failures = f" ({failed_runs.describe_failures(series.failed, series.attempts)})" if is_of_failures else ""
        print(f"not accepted, {reason}{failures}: {series.quantity} of {series.point}", file=sys.stderr)
    for reason in dict.fromkeys(reason for _, reason in refused):
        print(f"{reason}: {describe_verdicts()[reason]}", file=sys.stderr)
    if len(refused) == len(measured):
        raise StudyError(f"{validation.shorten_path(file)}: not written, nothing can be accepted; see the lines above")
    references.write(file, new)
    print(f"accepted {len(measured) - len(refused)} of {len(measured)} references in {validation.shorten_path(file)}")
