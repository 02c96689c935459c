"""Staging: how a run's files reach its ranks. All read them, one rank per node copies them, or one broadcasts them."""

import collections
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from study.core.errors import StudyError
from study.data.loaders import LOADERS, load_with_lines, map_matrix, read_sidecar
from study.experiment.definition import RunDefinition
from study.instruments.io_counters import SharedReads
from study.models.base import Table
from study.training.communicator import Communicator, Members

PIECE = 1 << 24


def tables(
    run: RunDefinition, communicator: Communicator, phases: Callable, reads: SharedReads, staged: contextlib.ExitStack
) -> dict[str, Table]:
    """The run's loaded files on this rank, {file: `Table`}, by its ``staging``.

    - ``none``: each rank reads the original files.
    - ``local_copy``: the first rank of each node copies them to the node's own storage, from which all ranks load.
    - ``node_broadcast``: the first rank of each node loads them and broadcasts the matrices within its node.
    - ``job_broadcast``: rank 0 loads them and broadcasts the matrices to all others.

    phases: the rank's log, for the phase ``stage`` (copying or broadcasting, and waiting for it). reads: counts bytes
    read from shared storage. staged: closed by the caller after all ranks have loaded.
    """
    match run["staging"]:
        case "none":
            return _load_all(run, run.data, reads)
        case "local_copy":
            return _load_all(run, _copies(run, communicator, phases, reads, staged), None)
        case "node_broadcast":
            return _broadcast(run, communicator, phases, reads, nodes(communicator))
        case "job_broadcast":
            return _broadcast(run, communicator, phases, reads, [tuple(range(communicator.size))])
        case other:
            raise StudyError(f"staging: {other!r} is none of none, local_copy, node_broadcast, job_broadcast")


def nodes(communicator: Communicator) -> list[Members]:
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


def _load_all(run: RunDefinition, data: dict[str, dict[str, str]], reads: SharedReads | None) -> dict[str, Table]:
    """Load all files. data: {file: its paths}. reads: the counter; None if the files are not on shared storage."""
    loader, forms, loaded = run["loader"], run.benchmark["files"], {}
    with reads.counted() if reads else contextlib.nullcontext():
        for file, paths in data.items():
            loaded[file] = _table(loader, paths, forms[file])
            if reads and LOADERS[loader].is_mapped:
                for kind in paths.keys() - {"sidecar"}:
                    reads.mapped(paths[kind])
    return loaded


def _table(loader: str, paths: dict[str, str], form: dict[str, Any]) -> Table:
    described = read_sidecar(paths["sidecar"])
    values = [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        matrix, lines = load_with_lines(loader, paths["path"], paths["sidecar"], form)
        return Table(matrix, values, lines=lines)
    codes, numbers = np.array(map_matrix(paths["codes"])), map_matrix(paths["path"])
    (rows, columns), number = described["shape"], len(values)
    if (codes.shape, numbers.shape) != ((rows, number), (rows, columns - number)):
        raise StudyError(
            f"{paths['path']}: its shape is {numbers.shape}, but {paths['sidecar']} says "
            f"{(rows, columns - number)}; delete it, and Snakemake makes it again"
        )
    return Table(codes, values, numbers)


def _copies(
    run: RunDefinition, communicator: Communicator, phases: Callable, reads: SharedReads, staged: contextlib.ExitStack
) -> dict[str, dict[str, str]]:
    """The files' paths, with the node's copies in place of the shared files."""
    with phases("stage"):
        (mine,) = (members for members in nodes(communicator) if communicator.rank in members)
        copies = _copied(run, reads, staged) if communicator.rank == mine[0] else None
        copies = communicator.gather(copies)[mine[0]]
    data = {file: dict(paths) for file, paths in run.data.items()}
    for file, kind, path, identity in copies:
        if not Path(path).exists() or _identity(path) != identity:
            raise StudyError(
                f"{socket.gethostname()}: rank {communicator.rank} does not see the copy that rank {mine[0]} made "
                f"({path}), as where each rank has a container of its own; use staging: node_broadcast"
            )
        data[file][kind] = path
    return data


def _copied(run: RunDefinition, reads: SharedReads, staged: contextlib.ExitStack) -> list[tuple]:
    """Copy the files to the node's storage; returns a list of (file, "path" or "codes", the copy's path, its identity).

    The copies have no name, so nothing remains of them, however this process ends; other ranks open them through it.
    """
    folder, copies = _node_storage(run.machine["node_storage"]), []
    for file, paths in run.data.items():
        for kind in (kind for kind in paths if kind != "sidecar"):
            with open(paths[kind], "rb") as source, reads.counted():
                target = staged.enter_context(_copy(source, folder))
            path = f"/proc/{os.getpid()}/fd/{target.fileno()}"
            copies.append((file, kind, path, _identity(path)))
    return copies


def _node_storage(named: str | None) -> str:
    """The folder that the machine's file names, with variables expanded."""
    folder = os.path.expandvars(named or "")
    if not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise StudyError(
            f"{socket.gethostname()}: {folder!r} is no folder here with an absolute path (node_storage in the "
            f"machine's file: {named})"
        )
    return folder


def _copy(source: BinaryIO, folder: str) -> Any:
    """An open, nameless copy of an open file in ``folder``. Its space is allocated before it is filled."""
    size = os.fstat(source.fileno()).st_size
    try:
        target = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        if size:
            os.posix_fallocate(target.fileno(), 0, size)
    except OSError as error:
        raise StudyError(
            f"{socket.gethostname()}: {source.name} ({size / 1e6:.0f} MB) cannot be copied to {folder} (node_storage "
            f"in the machine's file): {error.strerror}"
        ) from None
    shutil.copyfileobj(source, target, PIECE)
    target.flush()
    return target


def _identity(path: str) -> tuple[int, int, int]:
    """Identifies a file."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size


def _broadcast(
    run: RunDefinition, communicator: Communicator, phases: Callable, reads: SharedReads, sets: list[Members]
) -> dict[str, Table]:
    """The first rank of each process set loads; the others receive its matrices."""
    (mine,) = (members for members in sets if communicator.rank in members)
    is_reader = communicator.rank == mine[0]
    loaded = _load_all(run, run.data, reads) if is_reader else {}
    with phases("stage"):
        communicator.create_process_sets(sets)
        for file, paths in run.data.items():
            if not is_reader:
                with reads.counted():
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
