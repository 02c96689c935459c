"""Ensembles: their members, as the grid key ``members`` holds them.

An ensemble is one launch in which several members train at once, each on its own, and share one order of the samples.
A list of members is declared in a study's YAML by a name. A run holds the list itself, as JSON text, so that runs are
told apart by what their members are, and not by a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UNNAMED = "none"  # no list: the members differ in their seeds only
# Keys by which a run without several members is started as an ensemble all the same, and their values otherwise.
ALONE = {"ensemble": 1, "members": UNNAMED, "measure": "train", "compute": "measured"}
OF_SAMPLES = ("image_size", "resize", "channels", "classes", "flip")  # keys of a model that decide what a sample is


@dataclass(frozen=True)
class Member:
    """One member of an ensemble.

    Args:
        number: from 0.
        seed: its weights and dropout are seeded with the run's seed plus this; the number if the list gives none.
        learning_rate: None for the run's.
        batch_size: None for the run's.
        model: keys of the benchmark's ``model`` that it changes.
        simulated_samples_per_s: of its simulated accelerator; None for the run's.
    """

    number: int
    seed: int
    learning_rate: float | None = None
    batch_size: int | None = None
    model: dict[str, Any] = field(default_factory=dict)
    simulated_samples_per_s: float | None = None


def is_ensemble(parameters: Mapping[str, Any]) -> bool:
    """Whether a run is started as an ensemble. parameters: by name; keys that an older run lacks have their default."""
    return any(parameters.get(name, value) != value for name, value in ALONE.items())


def as_text(members: list[dict[str, Any]]) -> str:
    """The value of the grid key ``members`` for a list of members that a study's YAML declares."""
    return json.dumps(members, sort_keys=True, separators=(",", ":"))


def list_members(parameters: Mapping[str, Any]) -> list[Member]:
    """The members of a run, in their order."""
    text = parameters.get("members", UNNAMED)
    entries = [{}] * parameters.get("ensemble", 1) if text == UNNAMED else json.loads(text)
    return [Member(number, **{"seed": number, **entry}) for number, entry in enumerate(entries)]


def count_preprocessing_ranks(parameters: Mapping[str, Any]) -> int:
    """Number of ranks that preprocess: the grid key's, else all."""
    return int(parameters["preprocessing_ranks"] or parameters["ensemble"])
