"""The archive of a study: its report, tables, figures and findings, the records of its runs, and the workflow."""

from __future__ import annotations

from pathlib import Path

from study.contrib.exports import kinds
from study.core import archive
from study.core.paths import ROOT
from study.core.wording import counted
from study.experiment.undeclared import undeclared

OF_A_RUN = ("record.json", "run.yaml", "outcome.json", "provenance.json", "phases.jsonl", "history.csv", "members.csv")
LEFT_OUT = ("logs", "exports")  # folders of a study's results


@kinds.of_study("archive", title="results, run records and workflow in one file", file="{study}.tar.gz")
def export(results: kinds.Results, path: Path) -> str:
    """Write the archive: results, run records, the workflow, and their checksums."""
    members = _members(results)
    archive.write(path, f"{results.machine}-{results.study}", members)
    return f"{path}: {counted(len(members), 'file')}, {path.stat().st_size / 1e6:.1f} MB"


def _members(results: kinds.Results) -> dict[str, Path | bytes]:
    """{path in the archive: file}, laid out as the results, without those that the study no longer declares."""
    folder, root = results.folder, results.of_machine
    stale = set(undeclared(folder))
    own = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in LEFT_OUT]
    own = [path for path in own if path not in stale]
    of_runs = results.records()
    for record in list(of_runs):
        of_runs += [other for name in OF_A_RUN if (other := record.with_name(name)).is_file()]
    of_study = {path.relative_to(root).as_posix(): path for path in [*own, *of_runs]}
    return {**of_study, **workflow_files()}


def workflow_files() -> dict[str, Path]:
    """{path in the archive: file} of the workflow, its licence and how to cite it."""
    rules = [path.relative_to(ROOT) for path in sorted((ROOT / "rules").glob("*.smk"))]
    names = ["Snakefile", "LICENSE", "CITATION.cff", *(path.as_posix() for path in rules)]
    return {f"workflow/{name}": ROOT / name for name in names}
