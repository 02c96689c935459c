"""Write the reference pages of the docs that follow from declarations in the code and the schemas."""

from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.paths import ROOT
from study.experiment.reference import grid_keys
from study.report import command_lines, reference

PAGES = {
    "grid-keys.md": grid_keys,
    "studies.md": reference.studies,
    "machines.md": reference.machines,
    "benchmarks.md": reference.benchmarks,
    "figures.md": reference.figures,
    "columns.md": reference.columns,
    "findings.md": reference.findings,
    "command-lines.md": command_lines.command_lines,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        write_text(ROOT / "docs" / "reference" / name, page())


if __name__ == "__main__":
    exit_with_message(main)
