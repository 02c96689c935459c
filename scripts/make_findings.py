"""State the findings of a study, as JSON and Markdown, from the records of the runs that they compare."""

import argparse
from pathlib import Path

from study.compare import first_verdicts
from study.core import checked, paths
from study.core.errors import exit_with_message
from study.core.files import write_json, write_text
from study.experiment.expansion import load_planned
from study.records.table_inputs import gather
from study.report import sources
from study.report.findings import outcome


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--json", required=True, help="findings.json, in a study's folder")
    parser.add_argument("--markdown", required=True, help="the same for reading")
    arguments = parser.parse_args()
    study, results = load_planned(arguments.study), paths.machine_folder(arguments.json)
    used = {run.directory for run in sources.of_findings(study).runs}
    runs, _ = gather(study, results, lambda run: run.directory in used, uses_loading=False)
    machine = paths.machine_of(results)
    folder = Path(arguments.json).parent
    earlier = first_verdicts.read(folder, "findings")
    found = outcome.outcomes(study, runs, earlier)
    content = outcome.as_json(study, machine, found)
    checked.check(content, "study_findings", arguments.json)
    write_text(arguments.markdown, outcome.markdown(study, machine, found))
    first_verdicts.write(folder, "findings", outcome.seen(found, runs, earlier))
    write_json(arguments.json, content)


if __name__ == "__main__":
    exit_with_message(main)
