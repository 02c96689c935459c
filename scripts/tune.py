"""Say which setting of a study is worth changing: picked by its screening blocks, confirmed by its held-out blocks.

Reads the run records that exist; starts no run. Missing runs are counted.
"""

import argparse
import sys
from pathlib import Path

from study.compare import arms, first_verdicts, noise_of_runs, tuner
from study.core import command_line, paths
from study.core.errors import StudyError, exit_with_message
from study.core.wording import counted
from study.experiment.expansion import load_study
from study.machines import machine
from study.records.tidy import current_code, recorded, runs_frame
from study.report.tables.kinds import with_own_keys
from study.report.tables.tuning import is_compared, sentences, tuner_table


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(
        parents=[command_line.of_a_study()], description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="folder for the table; by default tuner, in the study's results")
    parser.add_argument(
        "--needed", action="store_true", help="print the missing records of the next stage, as targets for Snakemake"
    )
    arguments = command_line.parsed(parser)
    chosen = machine.load(arguments.machine)
    study = load_study(arguments.study, chosen)
    if not any(map(is_compared, study.runs)):
        what = "no grid has tuning, so there is no arm to pick; name a study with arms, or add some (docs/tuning.md)"
        raise StudyError(f"config/studies/{study.name}.yaml: runs: {what}")
    if why := tuner.unanswerable(study):
        print(f"Warning: config/studies/{study.name}.yaml: {why}", file=sys.stderr)
    results = Path(arguments.results_dir) / chosen["name"]
    done, left = recorded(filter(is_compared, study.runs), results)
    runs = runs_frame(done, current_code(study.runs, chosen), results)
    of_study = Path(paths.study_folder(results, study.name))
    earlier = first_verdicts.read(of_study, "tuner")
    if arguments.needed:
        print("\n".join(paths.record(results, run.directory) for run in tuner.needed(study, runs, earlier)))
        return
    found = tuner.answers(study, runs, earlier)
    if (seen := tuner.seen(found, runs, earlier)) != earlier:
        first_verdicts.write(of_study, "tuner", seen)
    folder = arguments.output or of_study / "tuner"
    table = with_own_keys(tuner_table(study, found), runs)
    table.write_to(folder)
    print(f"Study {study.name} on {chosen['name']}, steady throughput against the baseline's.")
    for line in [line for answer in found for line in sentences(answer, found)]:
        print(f"- {line}")
    noise = noise_of_runs.within_blocks(arms.measured(runs), arms.SPEED) if len(runs) else noise_of_runs.ASSUMED
    print("\n".join(f"- {line}" for line in tuner.power(study, noise)))
    if left:
        missing = counted(len(left), "run")
        print(f"- {missing} of baselines and arms without a record yet; --needed lists those of the next stage")
    print(f"Table: {folder}/tuner.md")


if __name__ == "__main__":
    exit_with_message(main)
