"""Write what follows from declarations in the code and the schemas: reference pages, and schemas for editors."""

from study.commands.reference import describe_command_lines
from study.core.errors import exit_with_message
from study.core.files import write_text
from study.core.paths import ROOT
from study.experiment.reference import render_grid_keys
from study.report import editor_schemas, reference

PAGES = {
    "grid-keys.md": render_grid_keys,
    "studies.md": reference.make_studies_page,
    "machines.md": reference.make_machines_page,
    "benchmarks.md": reference.make_benchmarks_page,
    "tables.md": reference.make_tables_page,
    "figures.md": reference.make_figures_page,
    "columns.md": reference.make_columns_page,
    "findings.md": reference.make_findings_page,
    "command-lines.md": describe_command_lines,
}


def main() -> None:
    """Write every page and schema, and into each of the repository's own files the line that names its schema."""
    for name, page in PAGES.items():
        write_text(ROOT / "docs" / "reference" / name, page())
    for kind in editor_schemas.SCHEMAS:
        write_text(editor_schemas.find_path(kind), editor_schemas.make_text(kind))
        for file in editor_schemas.list_files(kind):
            if (text := editor_schemas.add_schema_line(file, kind)) != file.read_text(encoding="utf-8"):
                write_text(file, text)


if __name__ == "__main__":
    exit_with_message(main)
