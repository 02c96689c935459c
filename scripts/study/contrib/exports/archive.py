"""The archive of a study: its report, tables, figures and findings, the records of its runs, and the workflow."""

from __future__ import annotations

from pathlib import Path

from study.contrib.exports import kinds
from study.core import archive
from study.core.paths import ROOT
from study.core.wording import format_count
from study.experiment.undeclared_results import list_undeclared_results

RUN_FILES = ("record.json", "run.yaml", "outcome.json", "provenance.json", "phases.jsonl", "history.csv", "members.csv")
SKIPPED_FOLDERS = ("logs", "exports")  # folders of a study's results


@kinds.register_study_export("archive", title="results, run records and workflow in one file", file="{study}.tar.gz")
def export(results: kinds.Results, path: Path) -> str:
    """Write the archive: results, run records, the workflow, and their checksums."""
    members = _collect_members(results)
    archive.write_archive(path, f"{results.machine}-{results.study}", members)
    return f"{path}: {format_count(len(members), 'file')}, {path.stat().st_size / 1e6:.1f} MB"


def _collect_members(results: kinds.Results) -> dict[str, Path | bytes]:
    """Collect {path in the archive: file}, laid out as the results, without files that the study no longer declares."""
    folder, root = results.folder, results.machine_folder
    stale = set(list_undeclared_results(folder))
    study_files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in SKIPPED_FOLDERS
    ]
    study_files = [path for path in study_files if path not in stale]
    run_files = results.list_records()
    for record in list(run_files):
        run_files += [other for name in RUN_FILES if (other := record.with_name(name)).is_file()]
    members = {path.relative_to(root).as_posix(): path for path in [*study_files, *run_files]}
    return {**members, **list_workflow_files()}


def list_workflow_files() -> dict[str, Path]:
    """List {path in the archive: file} of the workflow, its licence and how to cite it."""
    rules = [path.relative_to(ROOT) for path in sorted((ROOT / "rules").glob("*.smk"))]
    names = ["Snakefile", "LICENSE", "CITATION.cff", *(path.as_posix() for path in rules)]
    return {f"workflow/{name}": ROOT / name for name in names}
