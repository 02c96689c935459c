"""The archive of a study as an RO-Crate 1.1 of the profile Workflow Run Crate: ``ro-crate-metadata.json``.

The Snakefile is the main workflow, the study one run of it, and each run of training an action with its software, its
data set and its files. All of it is told from ``runs.csv``, so it is the same whenever it is made.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from study.core import archive, checked
from study.core.csv_files import read_rows
from study.core.paths import ROOT
from study.core.wording import counted
from study.experiment.undeclared import undeclared
from study.report.exports import kinds

FILE = "ro-crate-metadata.json"
OF_A_RUN = ("record.json", "run.yaml", "outcome.json", "provenance.json", "phases.jsonl", "history.csv", "members.csv")
LEFT_OUT = ("logs", kinds.FOLDER)  # folders of a study's results
WORKFLOW = "workflow/Snakefile"  # in the archive
LICENSES = "https://spdx.org/licenses/"
CRATE = "https://w3id.org/ro/crate/1.1"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
STATUS = "http://schema.org/{}ActionStatus"
# By the ends of names, for the archive to be the same on each machine: Python's own table is also the system's.
TYPES = {".csv": "text/csv", ".html": "text/html", ".json": "application/json", ".jsonl": "application/jsonl",
         ".md": "text/markdown", ".tex": "application/x-tex", ".svg": "image/svg+xml", ".pdf": "application/pdf",
         ".png": "image/png", ".yaml": "application/yaml", ".cff": "application/yaml", ".gz": "application/gzip",
         ".smk": "text/plain", ".sha256": "text/plain", ".txt": "text/plain", "": "text/plain"}  # fmt: skip
SAFE = "/+~=,@!$&'()*;"  # in an IRI as they are
Entity = dict[str, Any]
Row = Mapping[str, str]


@kinds.of_study("ro_crate", title="results, run records and workflow as an archive, an RO-Crate", file="{study}.tar.gz")
def export(results: kinds.Results, path: Path) -> str:
    """Write the archive: results, run records, the workflow, their checksums and the metadata."""
    members = _members(results)
    members[FILE] = metadata(results.machine, results.study, _rows(results.folder / "runs.csv"), members)
    archive.write(path, f"{results.machine}-{results.study}", members)
    return f"{path}: {counted(len(members), 'file')}, {path.stat().st_size / 1e6:.1f} MB"


def _members(results: kinds.Results) -> dict[str, Path | bytes]:
    """{path in the archive: file}, laid out as the results, without those that the study no longer declares."""
    folder, root = results.folder, results.of_machine
    stale = set(undeclared(folder))
    own = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in LEFT_OUT]
    own = [path for path in own if path not in stale]
    names = [row["record"] for name in ("runs.csv", "loading.csv", "attempts.csv") for row in _rows(folder / name)]
    of_runs = [root / name for name in dict.fromkeys(names)]
    for record in list(of_runs):
        of_runs += [other for name in OF_A_RUN if (other := record.with_name(name)).is_file()]
    of_study = {path.relative_to(root).as_posix(): path for path in [*own, *of_runs]}
    return {**of_study, **workflow_files()}


def _rows(path: Path) -> list[dict[str, str]]:
    return read_rows(path, ("record",)) if path.is_file() and path.read_bytes().strip() else []


def workflow_files() -> dict[str, Path | bytes]:
    """{path in the archive: file} of the workflow, its licence and how to cite it."""
    rules = {f"workflow/rules/{path.name}": path for path in sorted((ROOT / "rules").glob("*.smk"))}
    others = {f"workflow/{name}": ROOT / name for name in ("LICENSE", "CITATION.cff")}
    return {WORKFLOW: ROOT / "Snakefile", **rules, **others}


def metadata(machine: str, study: str, rows: Iterable[Row], members: Mapping[str, Path | bytes]) -> bytes:
    """The content of the metadata file.

    Args:
        machine: on which the study ran.
        study: its name.
        rows: of ``runs.csv``, {column: text}; columns that it lacks are not told.
        members: {path in the archive: a file, or its content}, with `workflow_files`.
    """
    rows, cited = list(rows), checked.load_yaml(ROOT / "CITATION.cff")
    graph = _Graph()
    authors = [_author(graph, number, each) for number, each in enumerate(cited["authors"], 1)]
    license_ = graph.add(LICENSES + cited["license"], "CreativeWork", name=cited["license"])
    files = {name: _file(graph, name, member) for name, member in sorted(members.items())}
    runs = [_run(graph, row, files) for row in rows]
    datasets = graph.of_type("Dataset")
    _workflow(graph, files, cited, authors, license_, rows)
    whole = _study(graph, study, machine, rows, files, datasets)
    ends = [end for row in rows if (end := _times(row)[1])]
    graph.add(
        "./",
        "Dataset",
        name=f"Study {study} on {machine}",
        description=f"Report, tables, figures, findings and run records of the study {study} on the machine {machine}: "
        f"{len(rows)} runs, of which {sum(row.get('status') == 'ok' for row in rows)} succeeded.",
        datePublished=max(ends, default=None),
        license=license_,
        author=authors,
        conformsTo=[graph.add(url, "CreativeWork", name=name, version=url.rsplit("/", 1)[1])
                    for url, name in PROFILES.items()],
        hasPart=[*files.values(), *datasets],
        mainEntity=files[WORKFLOW],
        mentions=[whole, *runs],
    )  # fmt: skip
    described = [{"@id": CRATE}, {"@id": list(PROFILES)[-1]}]
    graph.add(FILE, "CreativeWork", about={"@id": "./"}, conformsTo=described)
    content = {"@context": f"{CRATE}/context", "@graph": graph.entities()}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


class _Graph:
    """Entities by their id."""

    def __init__(self) -> None:
        self._found: dict[str, Entity] = {}

    def add(self, identity: str, kind: str | list[str], **properties: Any) -> Entity:
        """Add an entity, or properties to one; returns the reference to it. What is None or empty is left out."""
        known = self._found.setdefault(identity, {"@id": identity})
        given = {name: value for name, value in properties.items() if value not in (None, "", [])}
        known |= {"@type": kind, **{name: _compact(value) for name, value in given.items()}}
        return {"@id": identity}

    def of_type(self, kind: str) -> list[Entity]:
        return [{"@id": name} for name, each in self._found.items() if each["@type"] == kind]

    def entities(self) -> list[Entity]:
        """The descriptor first, then the root."""
        first = (FILE, "./")
        return [
            *(self._found[name] for name in first),
            *(each for name, each in self._found.items() if name not in first),
        ]


def _compact(value: Any) -> Any:
    """A list of one value as that value, as the compacted form of JSON-LD asks for."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _author(graph: _Graph, number: int, author: Mapping[str, Any]) -> Entity:
    if "family-names" in author:
        name = f"{author.get('given-names', '')} {author['family-names']}".strip()
        return graph.add(author.get("orcid", f"#author-{number}"), "Person", name=name)
    return graph.add(f"#author-{number}", "Organization", name=author["name"])


def _file(graph: _Graph, name: str, member: Path | bytes) -> Entity:
    size = len(member) if isinstance(member, bytes) else member.stat().st_size
    kind = TYPES.get(Path(name).suffix, "application/octet-stream")
    return graph.add(quote(name, SAFE), "File", name=name, contentSize=str(size), encodingFormat=kind)


def _workflow(
    graph: _Graph,
    files: Mapping[str, Entity],
    cited: Mapping[str, Any],
    authors: list[Entity],
    license_: Entity,
    rows: Iterable[Row],
) -> None:
    """The Snakefile, of the version of this project that made the archive."""
    versions = sorted({version for row in rows for name, version in _packages(row) if name == "snakemake"})
    language = graph.add(
        SNAKEMAKE, "ComputerLanguage", name="Snakemake", url="https://snakemake.github.io", version=", ".join(versions)
    )
    graph.add(
        WORKFLOW,
        ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        name=cited["title"],
        programmingLanguage=language,
        version=str(cited["version"]),
        license=license_,
        author=authors,
        hasPart=[each for name, each in files.items() if name.startswith("workflow/rules/")],
    )


def _study(
    graph: _Graph,
    study: str,
    machine: str,
    rows: Iterable[Row],
    files: Mapping[str, Entity],
    datasets: list[Entity],
) -> Entity:
    """The run of the workflow that made the study's results."""
    times = [_times(row) for row in rows]
    return graph.add(
        "#study",
        "CreateAction",
        name=f"Study {study} on {machine}",
        instrument={"@id": WORKFLOW},
        object=datasets,
        result=[each for name, each in files.items() if name.startswith("studies/")],
        startTime=min((begin for begin, _ in times if begin), default=None),
        endTime=max((end for _, end in times if end), default=None),
        actionStatus=STATUS.format("Completed"),
    )


def _run(graph: _Graph, row: Row, files: Mapping[str, Entity]) -> Entity:
    """One run of training."""
    folder = row["record"].rpartition("/")[0]
    begin, end = _times(row)
    definition = files.get(f"{folder}/run.yaml")
    own = [each for name, each in files.items() if name.startswith(f"{folder}/") and each != definition]
    failed = row.get("status") == "failed"
    return graph.add(
        f"#{quote(folder, SAFE)}",
        "CreateAction",
        name=folder.removeprefix("runs/"),
        instrument=_instrument(graph, row),
        object=[each for each in (_dataset(graph, row), definition) if each],
        result=own,
        startTime=begin,
        endTime=end,
        actionStatus=STATUS.format("Failed" if failed else "Completed"),
        error=": ".join(filter(None, (row.get("failure_kind"), row.get("failure_message")))) if failed else None,
    )


def _instrument(graph: _Graph, row: Row) -> Entity:
    """The program of the ranks: runs of one code with the same packages have one."""
    code, packages = row.get("training_code", ""), row.get("packages", "")
    digest = hashlib.sha256(f"{code}\n{packages}\n{row.get('system', '')}".encode()).hexdigest()[:12]
    required = [_software(graph, *each) for each in _packages(row)]
    return graph.add(
        f"#training-{digest}",
        "SoftwareApplication",
        name="training: scripts/launch_training.py and the ranks that it starts",
        version=code,
        operatingSystem=row.get("system"),
        softwareRequirements=required,
    )


def _software(graph: _Graph, name: str, version: str) -> Entity:
    identity = f"#software-{quote(name)}-{quote(version)}"
    return graph.add(identity, "SoftwareApplication", name=name, version=version)


def _dataset(graph: _Graph, row: Row) -> Entity | None:
    """The data set, which is not in the archive: its id follows from the checksum of its files, or from its name."""
    name = " ".join(filter(None, (row.get("benchmark"), row.get("dataset"))))
    if not name:
        return None
    checksum = row.get("data_checksum")
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {checksum or ''}").urn
    return graph.add(identity, "Dataset", name=name, identifier=checksum)


def _packages(row: Row) -> Iterator[tuple[str, str]]:
    """(name, version) of each one in the column ``packages``."""
    for each in filter(None, row.get("packages", "").split(", ")):
        name, _, version = each.rpartition(" ")
        if name:
            yield name, version


def _times(row: Row) -> tuple[str | None, str | None]:
    """Begin and end of a run in ISO 8601, UTC; None where they are not known."""
    begun, took = row.get("started_wall_ns", ""), row.get("runtime_s", "")
    if not re.fullmatch(r"[0-9]{1,19}([.]0)?", begun):
        return None, None
    begin_s = int(begun.removesuffix(".0")) / 1e9
    end_s = begin_s + float(took) if re.fullmatch(r"[0-9.]+(e[-+]?[0-9]+)?", took) else None
    return _iso(begin_s), None if end_s is None else _iso(end_s)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
