"""Staging: how a run's files reach its ranks. All read them, one rank per node copies them, or one broadcasts them."""

from __future__ import annotations

import collections
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study.communication.collectives import Collectives, Members
from study.core.errors import StudyError
from study.data.loaders import LOADERS, load, map_matrix, read_sidecar
from study.experiment.definition import RunDefinition
from study.instruments.counters import ReadCounter, Reads
from study.training.node_copies import NodeCopies
from study.workloads.base import Table

SIDECARS = {"sidecar", "scaled"}  # of the paths of a file: small ones, which are read where they are


@dataclass(frozen=True)
class Files:
    """The files that a rank reads: those that all nodes share, or its node's own copies.

    data: {file: its paths}. reads: counts what is read of them. copies: on the rank that made the node's copies.
    """

    data: dict[str, dict[str, str]]
    reads: ReadCounter
    copies: NodeCopies | None = None

    def remove_copies(self) -> None:
        """Remove the copies' names, if this rank made them; all ranks of the node have opened what they will read."""
        if self.copies:
            self.copies.remove()


def files(
    run: RunDefinition, communicator: Collectives, phases: Callable, reads: Reads, staged: contextlib.ExitStack
) -> Files:
    """The files that this rank reads, copied to its node first with ``staging: local_copy`` or a storage on each node.

    phases: the rank's log, for the phase ``stage`` (copying or broadcasting, and waiting for it). reads: counts bytes
    read. staged: at its end the copies are removed, and a `StudyError` that names a copy names the original instead.
    """
    if not _is_copied(run):
        return Files(run.data, reads.shared)
    with phases("stage"):
        (mine,) = (members for members in nodes(communicator) if communicator.rank in members)
        copies = _copied(run, reads, staged) if communicator.rank == mine[0] else None
        folder, identity, made = communicator.gather(
            (copies.folder, _identity(copies.folder), copies.made) if copies else None
        )[mine[0]]
    reads.staged = copies.size if copies else 0
    if not Path(folder).exists() or _identity(folder) != identity:
        raise StudyError(
            f"{socket.gethostname()}: rank {communicator.rank} does not see the copies that rank {mine[0]} made "
            f"({folder}), as where each rank has a container of its own; mount {Path(folder).parent} in all of them, "
            "or of tables use staging: node_broadcast"
        )
    staged.push(_naming_originals(made))
    data = {
        file: {kind: made.get(path, path) if kind not in SIDECARS else path for kind, path in paths.items()}
        for file, paths in run.data.items()
    }
    return Files(data, reads.node, copies)


def _is_copied(run: RunDefinition) -> bool:
    """Whether the run copies its files to each node. Without ``local_copy``, only a storage on each node is named."""
    return run["staging"] == "local_copy" or run.machine.get("node_storage") is not None


def tables(
    run: RunDefinition, found: Files, communicator: Collectives, phases: Callable, reads: Reads
) -> dict[str, Table]:
    """The run's loaded files on this rank, {file: `Table`}, by its ``staging``.

    - ``none``: each rank reads the files.
    - ``local_copy``: each rank reads its node's copies.
    - ``node_broadcast``: the first rank of each node loads them and broadcasts the matrices within its node.
    - ``job_broadcast``: rank 0 loads them and broadcasts the matrices to all others.

    found: from `files`.
    """
    match run["staging"]:
        case "none" | "local_copy":
            return _load_all(run, found)
        case "node_broadcast":
            return _broadcast(run, found, communicator, phases, reads, nodes(communicator))
        case "job_broadcast":
            return _broadcast(run, found, communicator, phases, reads, [tuple(range(communicator.size))])
        case other:
            raise StudyError(f"staging: {other!r} is none of none, local_copy, node_broadcast, job_broadcast")


def nodes(communicator: Collectives) -> list[Members]:
    """The ranks of each node, in order.

    Ranks with the same host name and the same local rank are on different nodes, so one host can stand for several
    nodes.
    """
    seen: collections.Counter = collections.Counter()
    found: dict[tuple[str, int], list[int]] = {}
    for rank, key in enumerate(communicator.gather((socket.gethostname(), communicator.local_rank))):
        found.setdefault((key[0], seen[key]), []).append(rank)
        seen[key] += 1
    return [tuple(members) for members in found.values()]


def _load_all(run: RunDefinition, found: Files) -> dict[str, Table]:
    """Load all files."""
    loader, forms, loaded = run["loader"], run.benchmark["files"], {}
    with found.reads.count():
        for file, paths in found.data.items():
            loaded[file] = _table(loader, paths, forms[file])
            if LOADERS[loader].is_mapped:
                for kind in paths.keys() - SIDECARS:
                    found.reads.add_mapped(paths[kind])
    return loaded


def _table(loader: str, paths: dict[str, str], form: dict[str, Any]) -> Table:
    described = read_sidecar(paths["sidecar"])
    values = [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        return Table(load(loader, paths["path"], paths["sidecar"], form), values)
    codes, numbers = np.array(map_matrix(paths["codes"])), map_matrix(paths["path"])
    (rows, columns), number = described["shape"], len(values)
    if (codes.shape, numbers.shape) != ((rows, number), (rows, columns - number)):
        raise StudyError(
            f"{paths['path']}: its shape is {numbers.shape}, but {paths['sidecar']} says "
            f"{(rows, columns - number)}; delete it, and Snakemake makes it again"
        )
    return Table(codes, values, numbers)


def _copied(run: RunDefinition, reads: Reads, staged: contextlib.ExitStack) -> NodeCopies:
    """Copy the run's files to the node's storage, but their sidecars."""
    key = "node_storage" if run["staging"] == "local_copy" else f"storage_on_nodes.{run['storage']}"
    copies = NodeCopies(_node_storage(run.machine["node_storage"], key), key)
    staged.callback(copies.remove)
    copies.add(
        [path for paths in run.data.values() for kind, path in paths.items() if kind not in SIDECARS], reads.shared
    )
    return copies


def _node_storage(named: str | None, key: str) -> str:
    """The folder that the machine's file names under ``key``, with variables expanded."""
    folder = os.path.expandvars(named or "")
    if not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise StudyError(
            f"{socket.gethostname()}: {folder!r} is no folder here with an absolute path ({key} in the machine's file: "
            f"{named})"
        )
    return folder


def _naming_originals(made: dict[str, str]) -> Callable[..., None]:
    """As the end of a context: a `StudyError` that names a copy is raised with the name of its original."""

    def rename(kind: type | None, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, StudyError):
            return
        message = told = str(error)
        for original, copy in made.items():
            message = message.replace(copy, original)
        if message != told:
            raise StudyError(message) from None

    return rename


def _identity(path: str) -> tuple[int, int]:
    """Identifies a folder."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino


def _broadcast(
    run: RunDefinition,
    found: Files,
    communicator: Collectives,
    phases: Callable,
    reads: Reads,
    sets: list[Members],
) -> dict[str, Table]:
    """The first rank of each process set loads; the others receive its matrices."""
    (mine,) = (members for members in sets if communicator.rank in members)
    is_reader = communicator.rank == mine[0]
    loaded = _load_all(run, found) if is_reader else {}
    with phases("stage"):
        communicator.create_process_sets(sets)
        for file, paths in run.data.items():
            if not is_reader:
                with reads.shared.count():
                    loaded[file] = _empty(paths)
            for matrix in (loaded[file].matrix, loaded[file].scaled):
                if matrix is not None:
                    communicator.broadcast_matrix(matrix, mine)
    return loaded


def _empty(paths: dict[str, str]) -> Table:
    """An empty `Table` to receive into."""
    described = read_sidecar(paths["sidecar"])
    (rows, columns), values = described["shape"], [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        return Table(np.empty((rows, columns), np.float32), values)
    numbers = np.empty((rows, columns - len(values)), np.float32)
    return Table(np.empty((rows, len(values)), np.float32), values, numbers)
