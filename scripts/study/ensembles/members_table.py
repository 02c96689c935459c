"""``members.csv``, a row per member. Apart from what ranks need: what judges power is not in a run's training code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core import fields, validation
from study.core.files import write_aside
from study.core.lazy import pandas as pd
from study.experiment.definition import RunDefinition
from study.experiment.ensemble import is_ensemble
from study.instruments import phases
from study.instruments.power import summary

FILE = "members.csv"  # in the run's directory


def write_members_table(folder: Path, run: RunDefinition) -> None:
    """Write ``members.csv`` into the run's directory, from ``metrics.json``, the phases and the telemetry there.

    Nothing for a run that is no ensemble, or that did not come to its end.
    """
    if not is_ensemble(run.parameters) or not (folder / "metrics.json").exists():
        return
    metrics = validation.load_valid_json(folder / "metrics.json", "metrics")
    ranks = metrics["ranks"]
    gpus = {each["rank"]: each["gpu"] for each in ranks}
    energies = summary.energy_of_gpus(folder, run.machine, phases.read_edges(folder / "phases.jsonl"), gpus)
    rows = sorted((_make_row(rank, *energies[rank["rank"]]) for rank in ranks), key=lambda row: row["member"])
    first, last = ([each.name for each in section.fields] for section in fields.load_sections(fields.MEMBER_FILES))
    metrics_of_all = dict.fromkeys(name for row in rows for name in row if name not in (*first, *last))
    declared = fields.list_columns(fields.MEMBER_FILES)
    whole_number_types = {
        name: "Int64" for name, each in declared.items() if each.column_type == fields.WHOLE
    }  # may be missing
    with write_aside(folder / FILE) as aside:
        pd.DataFrame(rows, columns=[*first, *metrics_of_all, *last]).astype(whole_number_types).to_csv(
            aside, index=False
        )


def _make_row(rank: Mapping[str, Any], energy_j: float | None, reason: str | None) -> dict[str, Any]:
    """Make the row of a member. rank: its entry in ``metrics.json``. energy_j: of its GPU; None with the reason."""
    member = rank["member"]
    return {
        "member": member["number"],
        "parameters": member["parameters"],
        "rank": rank["rank"],
        "host": rank["host"],
        **{name: member[name] for name in ("seed", "learning_rate", "batch_size", "epochs")},
        "losses": " ".join(map(str, member["losses"])),
        **member["quality"],
        "samples_preprocessed": member["samples_preprocessed"],
        "weights_crc32": rank["final_weights_crc32"],
        "initial_weights_crc32": rank["initial_weights_crc32"],
        "gpu_energy_j": energy_j,
        "gpu_energy_reason": reason,
    }
