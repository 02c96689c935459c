"""The report of the check: report.md, report.html and results.csv in one folder."""

import html
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from study.core.files import write_text
from study.launch.gpu_check import drawing
from study.launch.gpu_check.project_study import FOLDER
from study.launch.gpu_check.results import COLUMNS, FAIL, STATES, Row, write_csv

SHOWN = ("check", "device", "status", "value", "unit", "expected", "reason")
STYLE = (
    "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}td,th{border:1px solid #999;"
    "padding:.2em .5em;text-align:left;vertical-align:top}.fail{background:#fbb}.not{background:#eee}.pass{}"
)


def write(folder: Path, rows: Sequence[Row], facts: dict[str, str]) -> None:
    """All three files. facts: of the host, {name: value}."""
    write_csv(folder / "results.csv", COLUMNS, [asdict(row) for row in rows])
    drawn = drawing.figures(folder)
    for number, (_, svg) in enumerate(drawn, 1):
        write_text(folder / f"figure_{number}.svg", svg)
    write_text(folder / "report.md", _markdown(folder, rows, facts, drawn))
    write_text(folder / "report.html", _page(folder, rows, facts, drawn))


def summary(rows: Sequence[Row]) -> str:
    """How many checks have each result, in a line."""
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[state]} {state}" for state in STATES)


def facts(nvml: Any) -> dict[str, str]:
    """Versions and GPUs."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in ("torch", "numpy", "nvidia-ml-py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    for name, function in (
        () if nvml is None else (("driver", "nvmlSystemGetDriverVersion"), ("gpus", "nvmlDeviceGetCount"))
    ):
        try:
            answer = getattr(nvml, function)()
        except nvml.NVMLError as error:
            answer = str(error)
        found[name] = answer.decode() if isinstance(answer, bytes) else str(answer)
    return found


def _parts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.part, []).append(row)
    return found


def _studies(folder: Path) -> list[str]:
    """The results of the studies: how they are read elsewhere."""
    found = sorted(folder.glob(f"{FOLDER}/results/*/studies/*/report.html"))
    lines = [f"Study {path.parent.name}: {path.relative_to(folder)}" for path in found]
    if found:
        machine = found[0].parents[2]
        lines += [
            f"To read them in another clone, copy {machine.relative_to(folder)} to its folder results, then: "
            f"make report STUDY={found[0].parent.name} MACHINE={machine.name}"
        ]
    return lines


def _markdown(folder: Path, rows: Sequence[Row], facts: dict[str, str], drawn: Sequence[tuple[str, str]]) -> str:
    lines = ["# GPU check", "", f"{summary(rows)}.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    if failed := [row for row in rows if row.status == FAIL]:
        lines += ["", "## Failed", "", *(f"- {row.part}: {row.check}: {row.reason}" for row in failed)]
    for part, of_part in _parts(rows).items():
        lines += ["", f"## {part}", "", _line(SHOWN), _line(["---"] * len(SHOWN))]
        lines += [_line([getattr(row, name) for name in SHOWN]) for row in of_part]
    if studies := _studies(folder):
        lines += ["", "## Studies", "", *(f"- {line}" for line in studies)]
    if drawn:
        lines += ["", "## Figures"]
        for number, (caption, _) in enumerate(drawn, 1):
            lines += ["", f"![{caption}](figure_{number}.svg)", "", f"{caption}."]
    samples = sorted(path.name for path in folder.glob("samples_*.csv"))
    lines += ["", "## Raw samples", "", *(f"- `{name}`" for name in samples or ["none"])]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _page(folder: Path, rows: Sequence[Row], facts: dict[str, str], drawn: Sequence[tuple[str, str]]) -> str:
    text = [f"<!DOCTYPE html><meta charset=utf-8><title>GPU check</title><style>{STYLE}</style><h1>GPU check</h1>"]
    text.append(f"<p>{summary(rows)}.</p><ul>")
    text += [f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in facts.items()]
    text.append("</ul>")
    for part, of_part in _parts(rows).items():
        text.append(f"<h2>{html.escape(part)}</h2><table><tr>{''.join(f'<th>{name}</th>' for name in SHOWN)}</tr>")
        for row in of_part:
            cells = "".join(f"<td>{html.escape(getattr(row, name))}</td>" for name in SHOWN)
            text.append(f'<tr class="{row.status.split()[0]}">{cells}</tr>')
        text.append("</table>")
    text += [f"<p>{html.escape(line)}</p>" for line in _studies(folder)]
    text += [f"<figure>{svg}<figcaption>{html.escape(caption)}.</figcaption></figure>" for caption, svg in drawn]
    return "\n".join(text) + "\n"
