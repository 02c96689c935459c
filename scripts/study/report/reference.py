"""Reference pages of the docs that follow from the schemas: keys of configuration files, columns of the tidy tables."""

import textwrap
from collections.abc import Iterator
from typing import Any

from study.core import fields, validation
from study.experiment import schemas
from study.experiment.parameters import PARAMETERS
from study.machines import machine
from study.report.findings import declaration
from study.report.tables import TABLES

SPELLED = {"MB": "10^6 bytes", "GB/s": "10^9 bytes/s", "Mbit/s": "10^6 bits/s"}  # may also stand for multiples of 1024
SOURCES = ("url", "path", "synthetic", "image_files", "synthetic_images")
KEYS = "| key | values | required | meaning |\n|---|---|---|---|\n"
COLUMNS = "| column | type | unit | meaning |\n|---|---|---|---|\n"


def make_studies_page() -> str:
    """The page docs/reference/studies.md."""
    schema = schemas.build_study_schema()
    parts = schema["$defs"]
    sources = {name: parts[f"{name}_dataset"] for name in SOURCES}
    tables = [f"## Datasets: `source: {name}`\n\n{KEYS}{_make_rows(part, parts)}" for name, part in sources.items()]
    top = {name: {**part, "additionalProperties": True, "items": {}} for name, part in schema["properties"].items()}
    return _make_page(
        "Studies",
        "This page lists the keys of `config/studies/NAME.yaml`. The keys of a grid under `runs` are in [grid "
        "keys](grid-keys.md).",
        "studies",
        KEYS + _make_rows({**schema, "properties": top}, parts),
        "An entry of `datasets` has the keys of its source. A file's key is its key under `files` in the benchmark's "
        "[file](benchmarks.md).",
        *tables,
        f"## Loading measurements\n\nKeys of an entry of `loading`:\n\n{KEYS}{_make_rows(parts['loading'], parts)}",
    )


def make_machines_page() -> str:
    """The page docs/reference/machines.md."""
    return _make_page(
        "Machine files",
        "This page lists the keys of `config/machines/NAME.yaml`. A file with `base: OTHER` takes from that machine "
        "all keys that it does not give itself. `nodes` and `ranks_per_node` are required without `hosts`.",
        "machines",
        KEYS + _make_rows(machine.make_schema()),
    )


def make_benchmarks_page() -> str:
    """The page docs/reference/benchmarks.md."""
    schema = validation.read_schema("benchmarks")
    return _make_page(
        "Benchmark files",
        "This page lists the keys of `config/benchmarks/NAME.yaml`. The benchmark's module declares the keys of "
        "`model`.",
        "benchmarks",
        KEYS + _make_rows(schema, schema["$defs"]),
    )


def make_figures_page() -> str:
    """The page docs/reference/figures.md."""
    schema = validation.read_schema("figures")
    return _make_page(
        "Figures",
        "This page lists the keys of `config/figures.yaml` and `config/papers/<paper>/figures.yaml`. A figure has "
        "`runs` and `panels`, or a `kind`. Grid keys are in [grid keys](grid-keys.md), columns in "
        "[columns](columns.md).",
        "figures",
        KEYS + _make_rows(schema, schema["$defs"]),
    )


def make_tables_page() -> str:
    """The page docs/reference/tables.md."""
    rows = "".join(
        f"| `{name}` | {kind.title} | {kind.needs} |\n" for name, kind in sorted(TABLES.items()) if kind.title
    )
    return _make_page(
        "Tables",
        "This page lists the tables of a study, in its folder `tables/` as CSV, Markdown, LaTeX and HTML. A study "
        "makes those whose needs it meets. A name that begins with a paper's is that paper's table, with the published "
        "values beside yours; the `claims` of a paper are the numbers in its text.",
        "config/tables.yaml",
        f"| table | meaning | the study needs |\n|---|---|---|\n{rows}",
    )


def make_findings_page() -> str:
    """The page docs/reference/findings.md."""
    schema = declaration.make_schema()
    parts = schema["$defs"]
    points = {**schema["properties"]["points"], "properties": {}}
    return _make_page(
        "Findings",
        "This page lists the keys of `config/findings/NAME.yaml`. The keys of `points` are [grid keys](grid-keys.md). "
        "Measured columns are in [columns](columns.md). [When a difference counts](../comparing-runs.md#findings) says "
        "how verdicts and intervals are made.",
        "findings",
        KEYS + _make_rows({**schema, "properties": {**schema["properties"], "points": points}}, parts),
    )


def make_columns_page() -> str:
    """The page docs/reference/columns.md."""
    grid = "".join(
        f"| `{each.name}` | {each.kind} | {each.unit or ''} | {each.meaning.rstrip('.')} |\n"
        for each in PARAMETERS.values()
        if each.is_repeat
    )
    return _make_page(
        "Columns of the CSV files",
        "This page defines the columns of the CSV files of a study. A column that does not apply to a run is empty. "
        "Times of phases are those of the slowest rank. `metrics.json` and `phases.jsonl` in the run directory have "
        "the values of each rank.",
        "config/fields/",
        "## `runs.csv`\n\nOne row per run. All [grid keys](grid-keys.md) are columns too; those that a command does "
        "not have are empty. [Method](../method.md#definitions-of-the-numbers) and [telemetry](../telemetry.md) define "
        f"the measured numbers precisely.\n\n{COLUMNS}{grid}",
        *(_make_section(each) for each in fields.load_sections() if any(field.column for field in each.fields)),
        "## `loading.csv`\n\nOne row per load.",
        *(_make_section(each) for each in fields.load_sections(fields.LOAD_FILES)),
        "## `history.csv`\n\nEach run has this file: one row per epoch. Loss and metrics are columns too (`val_`: "
        "validation).",
        *(_make_section(each) for each in fields.load_sections(fields.EPOCH_FILES)),
        "## `members.csv`\n\nEach ensemble has this file: one row per member. The metrics are columns too.",
        *(_make_section(each) for each in fields.load_sections(fields.MEMBER_FILES)),
    )


def _make_section(section: fields.Section) -> str:
    """The columns of a section as a table, below where they come from and when all of them are empty."""
    empty = f" Empty {section.empty}." if section.empty else ""
    rows = "".join(
        f"| `{each.column}` | {each.column_type} | {_spell_unit(each.column_unit)} | {each.text} |\n"
        for each in section.fields
        if each.column
    )
    return f"### {section.title}\n\nFrom {section.source}.{empty}\n\n{COLUMNS}{rows}"


def _spell_unit(unit: str | None) -> str:
    return SPELLED.get(unit or "", unit or "")


def _make_page(title: str, says: str, schema: str, *parts: str) -> str:
    source = schema if "/" in schema else f"config/schemas/{schema}.schema.yaml"
    source = f"This page is written by `make reference` from `{source}`."
    return "\n\n".join([f"# {title}", *map(_wrap_paragraphs, (says, source, *parts))]) + "\n"


def _wrap_paragraphs(text: str) -> str:
    """Paragraphs in lines of at most 120 characters; tables as they are, and links whole."""
    paragraphs = text.rstrip().split("\n\n")
    return "\n\n".join(
        each if each.startswith("|") else textwrap.fill(each, 120, break_on_hyphens=False) for each in paragraphs
    )


def _make_rows(schema: dict[str, Any], parts: dict[str, Any] | None = None, above: str = "") -> str:
    """One table row per key, those of nested mappings and lists with the keys above them: ``queue.most_jobs``."""
    return "".join(
        f"| `{above}{name}` | {_describe_values(part)} | {'yes' if name in schema.get('required', ()) else ''} | "
        f"{part.get('description', '')} |\n" + _make_inner_rows(f"{above}{name}", part, parts or {})
        for name, part in _list_keys(schema, parts or {})
    )


def _list_keys(schema: dict[str, Any], parts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, part in schema.get("properties", {}).items():
        yield name, _resolve_references(part, parts)
    free = schema.get("additionalProperties")
    if isinstance(free, dict) and "properties" in schema:
        yield "<file>", _resolve_references(free, parts)


def _make_inner_rows(name: str, part: dict[str, Any], parts: dict[str, Any]) -> str:
    """The rows of the keys inside a key's value."""
    inside, dots = _resolve_references(part.get("items", part), parts), "[]." if "items" in part else "."
    if "properties" not in inside and isinstance(free := inside.get("additionalProperties"), dict):
        inside, dots = _resolve_references(free, parts), f".<{'column' if 'propertyNames' in free else 'name'}>."
    return _make_rows(inside, parts, name + dots) if "properties" in inside else ""


def _resolve_references(part: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """A schema with the part that it refers to; its own description goes first."""
    if "$ref" in part:
        part = {**_resolve_references(parts[part["$ref"].split("/")[-1]], parts), **part}
    if "oneOf" in part and "properties" not in part:
        part = {**part, "oneOf": [_resolve_references(each, parts) for each in part["oneOf"]]}
    if "items" in part and "$ref" in part["items"] and "title" not in part:
        part = {**part, "items": _resolve_references(part["items"], parts)}
    return part


def _describe_values(part: dict[str, Any]) -> str:
    """The values of a key in words."""
    if "title" in part:
        return str(part["title"])
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "oneOf" in part and "properties" not in part:
        one, *others = part["oneOf"]
        if [each.get("items") for each in others] == [one]:
            return f"{_describe_values(one)}, or a list of these"
        return ", or ".join(_describe_values(each) for each in part["oneOf"])
    kind = part.get("type", "")
    if isinstance(kind, list):
        return ", or ".join(map(_name_type, kind))
    if kind == "array":
        inside = part.get("items", {})
        return "list" if inside.get("type") == "object" or not inside else f"list of {_describe_values(inside)}"
    return _name_type(kind) + _describe_range(part)


def _name_type(kind: str) -> str:
    return {"object": "mapping", "string": "text", "boolean": "`true` or `false`"}.get(kind, kind)


def _describe_range(part: dict[str, Any]) -> str:
    ends = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    return "".join(f", {words} {part[end]}" for end, words in ends.items() if end in part)
