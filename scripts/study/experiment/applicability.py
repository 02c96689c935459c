"""Which grid keys can have an effect in a run; the values of the others say nothing about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from study.experiment import programs
from study.experiment.parameters import pytorch, strategy
from study.experiment.parameters.workload import PYTORCH
from study.workloads import command

DERIVED = {"batch_size_per_rank": "batch_size"}  # columns that follow from a key


def find_inapplicable_keys(values: Mapping[str, Any], spec: Mapping[str, Any]) -> set[str]:
    """The grid keys that can have no effect in a run, although its record has their defaults, and derived columns.

    For a command these are the keys that neither its words nor the launch use; for this project's own training those of
    other frameworks and strategies.

    Args:
        values: {grid key: value} of the run.
        spec: its benchmark's YAML, or what the run's definition has of it.
    """
    if command.is_command(spec):
        keys = programs.find_inapplicable_keys(values, spec)
    else:
        keys = strategy.list_inapplicable_keys(values["strategy"])
        keys |= pytorch.list_inapplicable_keys(values["strategy"]) if values["framework"] == PYTORCH else set()
    return keys | {column for column, key in DERIVED.items() if key in keys}
