"""Predict runtime and energy at rank counts that were not measured, and recommend a count for a goal.

Reads the run records that exist; starts nothing. Missing runs are counted.
"""

import argparse
import dataclasses
from pathlib import Path

from study.core import command_line, configuration, paths
from study.core.errors import StudyError, exit_with_message
from study.core.files import write_text
from study.core.wording import counted
from study.experiment.expansion import load_study
from study.machines import host_capabilities, machine
from study.prediction import extra_p, goals
from study.prediction.answers import answers, series_key
from study.prediction.settings import select
from study.records.tidy import current_code, recorded, runs_frame
from study.report.figures import prediction_drawing
from study.report.figures.drawing import write
from study.report.tables.kinds import with_own_keys
from study.report.tables.layout import Table
from study.report.tables.prediction import check_table, prediction_table, recommendation_table


def main() -> None:
    """Read the command line and do it."""
    config = configuration.settings()
    parser = argparse.ArgumentParser(parents=[command_line.of_a_study()], description=__doc__)
    parser.add_argument("--goal", default="fastest", help="a file name in config/prediction/goals")
    parser.add_argument("--output", help="a folder; by default in the study's results")
    parser.add_argument("--extra-p", action="store_true", help="also write the measured points as input for Extra-P")
    arguments = command_line.parsed(parser)
    goal, chosen = goals.load(arguments.goal), machine.load(arguments.machine)
    study = load_study(arguments.study, chosen)
    results = Path(arguments.results_dir) / chosen["name"]
    output = Path(arguments.output or f"{paths.study_folder(results, study.name)}/recommendation/{goal.name}")
    if arguments.results_dir != config["results_dir"] and not Path(arguments.results_dir).is_dir():
        raise StudyError(f"--results-dir: there is no folder {arguments.results_dir}")
    done, left = recorded(study.runs, results)
    reads_targets = any(run.dataset.target for run in done)
    runs = runs_frame(done, current_code(study.runs, chosen), results, reads_targets=reads_targets)
    selection = select(runs)
    planned: dict = {}
    for run in study.runs:
        planned.setdefault(series_key(run), []).append(run.gpus)
    found = list(answers(selection.used, planned, chosen, selection.failed, host_capabilities.find_capacity(chosen)))
    told = _told(len(left), selection.left_out)
    tables = [recommendation_table(found, goal), prediction_table(found), check_table(found)]
    for table in tables:
        whole = dataclasses.replace(table, notes=[*table.notes, *told, *selection.problems])
        _write(with_own_keys(whole, runs), study.name, output)
    data = prediction_drawing.select(found, study.name, chosen["name"])
    write(prediction_drawing.draw, data, output / "prediction_curves.svg", output / "prediction_curves.pdf")
    if arguments.extra_p:
        for name, text in extra_p.texts(selection.used):
            write_text(output / "extra-p" / name, text)
    print(f"Goal {goal.name}: {goal.description}. Study {study.name} on {chosen['name']}.")
    nothing = [] if found else ["no usable run: measure at least three rank counts of a workload"]
    for line in [*nothing, *tables[0].notes, *told, *selection.problems]:
        print(f"- {line}")
    print(f"Tables and figure: {output}")


def _told(missing: int, left_out: dict[str, int]) -> list[str]:
    lines = [f"{counted(number, 'run')} left out: {reason}" for reason, number in left_out.items()]
    return lines + ([f"{counted(missing, 'run')} of the study without a record yet"] if missing else [])


def _write(table: Table, study: str, folder: Path) -> None:
    dataclasses.replace(table, caption=f"study {study}: {table.caption}").write_to(folder)


if __name__ == "__main__":
    exit_with_message(main)
