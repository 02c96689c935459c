"""Compare the latest runs of a study with its performance references. Reads the records that exist; starts no run.

Exit code: 1 for a regression, or for more failures than in the reference; 2 if there was no check because of a mistake
or an error; otherwise 0.
"""

import argparse
import sys
import traceback
from pathlib import Path

from study import plan
from study.compare import failed_runs, first_verdicts, reference_check, references
from study.core import checked, command_line, paths
from study.core.errors import StudyError, exit_with_message
from study.experiment.expansion import load_study
from study.machines import machine
from study.report.tables.check import NOTES, check_table

REGRESSION, MISTAKE = 1, 2  # exit codes; argparse's is 2 too


def main() -> bool:
    """Read the command line and do it; whether a regression, or failures, were found that count."""
    parser = argparse.ArgumentParser(
        parents=[command_line.of_a_study()], description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="a folder to write the table to")
    parser.add_argument("--accept", action="store_true", help="make the latest repeats the reference")
    parser.add_argument("--only-report", action="store_true", help="exit code 0 for a regression and for failures too")
    arguments = command_line.parsed(parser)
    on = machine.load(arguments.machine)
    study, name = load_study(arguments.study, on), on["name"]
    plan.check_references(study)
    results, path = Path(arguments.results_dir) / name, references.path_of(name, study.name)
    accepted = references.read(path)
    reference_check.verify(accepted, study, path)
    found = reference_check.measured(study, results, accepted)
    if not found:
        print(f"study {study.name} declares no references, and {checked.shown(path)} has none: nothing to check")
        return False
    folder = Path(paths.study_folder(results, study.name))
    earlier = first_verdicts.read(folder, "check")
    if arguments.accept:
        _accept(path, found, accepted)
        _note(folder, {}, earlier)  # another reference is another question
        return False
    found = reference_check.first_seen(found, earlier)
    rows = reference_check.compare(found, accepted)
    _note(folder, reference_check.seen(found, rows, earlier), earlier)
    table = check_table(rows, study.name, name)
    print(table.markdown())
    if arguments.output:
        table.write_to(arguments.output)
    regressions = int(rows["verdict"].isin(reference_check.FAILING).sum())
    told = ", ".join(f"{number} {verdict}" for verdict, number in rows["verdict"].value_counts().items())
    print(f"study {study.name} on {name}: {told}")
    return regressions > 0 and not arguments.only_report


def _note(folder: Path, seen: first_verdicts.FirstVerdicts, earlier: first_verdicts.FirstVerdicts) -> None:
    """Note which runs had a verdict; a results folder that cannot be written to is only reported."""
    if seen == earlier:
        return
    try:
        first_verdicts.write(folder, "check", seen)
    except OSError as error:
        print(f"Warning: {checked.shown(folder)}: this check cannot be noted: {error}", file=sys.stderr)


def _accept(
    path: Path, found: list[reference_check.Series], accepted: dict[tuple[str, str], references.Accepted]
) -> None:
    """Write the new references; those that cannot be measured now stay."""
    new = list(reference_check.accept(found, accepted))
    refused = [(series, why) for series in found if (why := reference_check.refusal(series, accepted.get(series.key)))]
    for each, why in refused:
        told = failed_runs.describe_failures(each.failed, each.attempts)
        reason = f" ({told})" if why == reference_check.FAILURES else ""
        print(f"not accepted, {why}{reason}: {each.quantity} of {each.point}", file=sys.stderr)
    for problem in dict.fromkeys(why for _, why in refused):
        print(f"{problem}: {NOTES[problem]}", file=sys.stderr)
    if len(refused) == len(found):
        raise StudyError(f"{checked.shown(path)}: not written, nothing can be accepted; see the lines above")
    references.write(path, new)
    print(f"accepted {len(found) - len(refused)} of {len(found)} references in {checked.shown(path)}")


def run() -> None:
    """Do `main` and exit; code 1 is for a regression only, so that it can be told from a check that did not happen."""
    found: list[bool] = []
    try:
        exit_with_message(lambda: found.append(main()))
    except SystemExit as ended:
        sys.exit(MISTAKE if ended.code == 1 else ended.code)
    except Exception:  # Python's own code for it is 1
        traceback.print_exc()
        sys.exit(MISTAKE)
    sys.exit(REGRESSION if any(found) else 0)


if __name__ == "__main__":
    run()
