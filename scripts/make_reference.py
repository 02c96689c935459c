"""Write the reference pages of the docs that follow from declarations in the code and the schemas."""

from study import cli
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.paths import ROOT
from study.experiment.reference import grid_keys
from study.report import command_lines, reference

VERBS = {
    name: (verb.question, verb.script, verb.exit_codes.removeprefix("Exit codes: ").rstrip("."))
    for name, verb in cli.VERBS.items()
}
PAGES = {
    "grid-keys.md": grid_keys,
    "studies.md": reference.studies,
    "machines.md": reference.machines,
    "benchmarks.md": reference.benchmarks,
    "figures.md": reference.figures,
    "columns.md": reference.columns,
    "findings.md": reference.findings,
    "command-lines.md": lambda: command_lines.command_lines(VERBS),
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        write_text(ROOT / "docs" / "reference" / name, page())


if __name__ == "__main__":
    exit_with_message(main)
