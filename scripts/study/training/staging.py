"""Staging: how a run's files reach its ranks. All read them, or one rank per node copies them."""

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
from study.data import page_cache
from study.data.file_changes import find_recorded_checksum
from study.data.loaders import LOADERS, load_matrix, map_matrix, read_sidecar
from study.experiment.definition import RunDefinition
from study.instruments.counters import ReadCounter, Reads
from study.training.node_copies import NodeCopies
from study.workloads.base import Table

SIDECARS = {"sidecar", "scaled"}  # kinds of paths whose small files are read where they are


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


def release_pages(run: RunDefinition) -> None:
    """Ask this node's kernel to drop the run's files from memory, so that the next run reads them from storage, too."""
    for path in (Path(path) for paths in run.data.values() for path in paths.values()):
        for file in path.rglob("*") if path.is_dir() else [path]:
            with contextlib.suppress(OSError):
                page_cache.release_file(file)


def provide_files(
    run: RunDefinition, communicator: Collectives, phases: Callable, reads: Reads, staged: contextlib.ExitStack
) -> Files:
    """The files that this rank reads; with ``staging: local_copy``, or a storage on each node, copied there first.

    phases: the rank's log, for the phase ``stage`` (copying, and waiting for it). reads: counts bytes
    read. staged: at its end the copies are removed, and a `StudyError` that names a copy names the original instead.
    """
    if not _copies_files(run):
        return Files(run.data, reads.shared)
    with phases("stage"):
        (node_ranks,) = (members for members in group_ranks_by_node(communicator) if communicator.rank in members)
        copies = _copy_files(run, reads, staged) if communicator.rank == node_ranks[0] else None
        folder, identity, copies_by_original = communicator.gather(
            (copies.folder, _identify_folder(copies.folder), copies.copies) if copies else None
        )[node_ranks[0]]
    reads.staged = copies.size if copies else 0
    if not Path(folder).exists() or _identify_folder(folder) != identity:
        raise StudyError(
            f"{socket.gethostname()}: rank {communicator.rank} does not see the copies that rank {node_ranks[0]} made "
            f"({folder}), as where each rank has a container of its own; mount {Path(folder).parent} in all of them"
        )
    staged.push(_make_error_renamer(copies_by_original))
    data = {
        file: {
            kind: copies_by_original.get(path, path) if kind not in SIDECARS else path for kind, path in paths.items()
        }
        for file, paths in run.data.items()
    }
    return Files(data, reads.node, copies)


def _copies_files(run: RunDefinition) -> bool:
    """True if the run copies its files to each node: under ``local_copy``, or with a storage on each node."""
    return run["staging"] == "local_copy" or run.machine.get("node_storage") is not None


def group_ranks_by_node(communicator: Collectives) -> list[Members]:
    """The ranks of each node, in order.

    Ranks with the same host name and the same local rank are on different nodes, so one host can stand for several
    nodes.
    """
    counts: collections.Counter = collections.Counter()
    ranks_by_node: dict[tuple[str, int], list[int]] = {}
    for rank, key in enumerate(communicator.gather((socket.gethostname(), communicator.local_rank))):
        ranks_by_node.setdefault((key[0], counts[key]), []).append(rank)
        counts[key] += 1
    return [tuple(members) for members in ranks_by_node.values()]


def load_tables(run: RunDefinition, files: Files) -> dict[str, Table]:
    """Load all tables of the run on this rank, {file: `Table`}. files: of `provide_files`."""
    loader, forms, loaded = run["loader"], run.benchmark["files"], {}
    with files.reads.count():
        for file, paths in files.data.items():
            loaded[file] = _load_table(loader, paths, forms[file])
            if LOADERS[loader].is_mapped:
                for kind in paths.keys() - SIDECARS:
                    files.reads.add_mapped(paths[kind])
    return loaded


def _load_table(loader: str, paths: dict[str, str], form: dict[str, Any]) -> Table:
    """Load one table; one that is stored as codes and numbers must have the shapes of its sidecar."""
    described = read_sidecar(paths["sidecar"])
    values = [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        return Table(load_matrix(loader, paths["path"], paths["sidecar"], form), values)
    codes, numbers = np.array(map_matrix(paths["codes"])), map_matrix(paths["path"])
    (rows, columns), number = described["shape"], len(values)
    if (codes.shape, numbers.shape) != ((rows, number), (rows, columns - number)):
        raise StudyError(
            f"{paths['path']}: its shape is {numbers.shape}, but {paths['sidecar']} says "
            f"{(rows, columns - number)}; delete it, and Snakemake makes it again"
        )
    return Table(codes, values, numbers)


def _copy_files(run: RunDefinition, reads: Reads, staged: contextlib.ExitStack) -> NodeCopies:
    """Copy the run's files, without sidecars, to the node's storage."""
    key = "node_storage" if run["staging"] == "local_copy" else f"storage_on_nodes.{run['storage']}"
    copies = NodeCopies(_expand_node_storage(run.machine["node_storage"], key), key)
    staged.callback(copies.remove)
    copies.add(
        [path for paths in run.data.values() for kind, path in paths.items() if kind not in SIDECARS],
        reads.shared,
        {
            paths["path"]: find_recorded_checksum(Path(paths["path"]), Path(paths["sidecar"]))
            for paths in run.data.values()
            if "codes" not in paths and Path(paths["path"]).is_file()
        },
    )
    return copies


def _expand_node_storage(configured: str | None, key: str) -> str:
    """The folder that the machine's file names under ``key``, with variables expanded; it must exist."""
    folder = os.path.expandvars(configured or "")
    if not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise StudyError(
            f"{socket.gethostname()}: {folder!r} is no folder here with an absolute path ({key} in the machine's file: "
            f"{configured})"
        )
    return folder


def _make_error_renamer(copies: dict[str, str]) -> Callable[..., None]:
    """Make the end of a context that raises a `StudyError` about a copy with the name of its original."""

    def rename(kind: type | None, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, StudyError):
            return
        message = original_message = str(error)
        for original, copy in copies.items():
            message = message.replace(copy, original)
        if message != original_message:
            raise StudyError(message) from None

    return rename


def _identify_folder(path: str) -> tuple[int, int]:
    """(Device, inode) of a folder, equal for all who see the same one."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino
