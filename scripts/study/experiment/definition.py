"""The definition of one run on one machine, as launch and ranks read it; the content of a run's ``run.yaml``.

Nothing here uses the declared parameters, so that a new key does not change the version of the training code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import core_schema, validation
from study.core.errors import StudyError
from study.core.files import write_text


@dataclass(frozen=True)
class Derived:
    """Values that follow from the parameters.

    seed: the order of rank r's samples is seeded with seed + r, its dropout as
    `study.data.order.derive_rank_seed` says.
    """

    epochs_per_rank: int
    batch_size_per_rank: int
    nodes: int
    seed: int


@dataclass(frozen=True)
class RunDefinition:
    """One run. ``run["gpus"]`` is the value of a parameter.

    Args:
        fingerprint: differs between runs whose results could differ; see `study.experiment.inputs.define_run`.
        parameters: all parameters, {name: value}.
        derived: values that follow from the parameters.
        benchmark: ``name``, and the keys of the benchmark's YAML that training reads.
        dataset: ``id`` and the study's definition of the dataset.
        data: the paths of each file that the run reads, {file: {"path", "sidecar", perhaps "codes", "scaled"}}.
        machine: ``name``, and the keys of the machine's file that training reads; of its hosts those in use, a
            list of [host, ranks].
        attempt: 1, and higher for a run that is repeated since its block was disturbed; no part of the fingerprint.
    """

    fingerprint: str
    parameters: dict[str, Any]
    derived: Derived
    benchmark: dict[str, Any]
    dataset: dict[str, Any]
    data: dict[str, dict[str, str]]
    machine: dict[str, Any]
    attempt: int = 1

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self["gpus"]

    @property
    def ranks_together(self) -> int:
        """The number of ranks that train together: all, or those of one member of an ensemble."""
        return self.ranks // self.parameters.get("ensemble", 1)

    @property
    def emulated_ranks(self) -> int:
        """The number of ranks that each rank trains as; 1 for one rank as itself."""
        return self.parameters.get("emulated_ranks", 1)  # a definition made before the key existed lacks it

    @property
    def framework(self) -> str:
        """The framework that trains."""
        return self.parameters.get("framework", "tensorflow")  # a definition made before the key existed lacks it

    @property
    def learning_rate(self) -> float:
        """The learning rate of one rank: the run's own, else the benchmark's."""
        return self.parameters.get("base_learning_rate") or self.benchmark["learning_rate"]

    @property
    def compute_threads(self) -> int:
        """Threads of a rank that compute one operation together."""
        chosen = self.parameters.get("intra_op_threads", 0)
        return chosen or self.machine["cores_per_rank"] - self.parameters.get("communication_cores", 0)

    @property
    def operations_at_once(self) -> int:
        """Operations that a rank computes at once."""
        return self.parameters.get("inter_op_threads", 0) or 1

    def as_dict(self) -> dict[str, Any]:
        """The definition as plain values, the input of `from_dict`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RunDefinition:
        """The definition from plain values; raises `StudyError` naming the key that is missing or unknown."""
        validation.validate(content, "definition", "no run's definition")
        return cls(**{**content, "derived": Derived(**content["derived"])})

    def write(self, path: str | Path) -> None:
        """Write ``run.yaml``, whole or not at all."""
        write_text(path, core_schema.dump_yaml(self.as_dict()))

    @classmethod
    def read(cls, path: str | Path, build: Callable[[Any], RunDefinition] | None = None) -> RunDefinition:
        """Read a ``run.yaml``; raises `StudyError` with the file's name if it cannot be read.

        build: makes the definition from the file's content; `from_dict` if None.
        """
        content = validation.read_yaml(path)
        try:
            return (build or cls.from_dict)(content)
        except StudyError as error:
            raise StudyError(f"{path}: {error}") from None
