"""Write what follows from declarations in the code and the schemas: reference pages, and schemas for editors."""

from study.commands.reference import describe_command_lines
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.paths import ROOT
from study.experiment.reference import grid_keys
from study.report import editor_schemas, reference

PAGES = {
    "grid-keys.md": grid_keys,
    "studies.md": reference.studies,
    "machines.md": reference.machines,
    "benchmarks.md": reference.benchmarks,
    "figures.md": reference.figures,
    "columns.md": reference.columns,
    "findings.md": reference.findings,
    "command-lines.md": describe_command_lines,
}


def main() -> None:
    """Write every page and schema, and into each of the repository's own files the line that names its schema."""
    for name, page in PAGES.items():
        write_text(ROOT / "docs" / "reference" / name, page())
    for kind in editor_schemas.SCHEMAS:
        write_text(editor_schemas.path(kind), editor_schemas.text(kind))
        for file in editor_schemas.files(kind):
            if (text := editor_schemas.with_schema(file, kind)) != file.read_text(encoding="utf-8"):
                write_text(file, text)


if __name__ == "__main__":
    exit_with_message(main)
