"""How a run's files come to its ranks: all read them, one rank a node copies them, or one reads and broadcasts them."""

import collections
import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

import numpy as np

from study.core.errors import StudyError
from study.data.loaders import load, map_matrix, read_sidecar
from study.models.base import Table

PIECE = 1 << 24


def tables(run, ranks, phases, reads, staged):
    """The run's loaded files on this rank, {file: `Table`}, by its ``staging``.

    - ``none``: each rank reads them where they lie.
    - ``local_copy``: the first rank of each node copies them to storage of the node's own, from which all load.
    - ``node_broadcast``: the first rank of each node loads them and broadcasts the matrices to the node's others.
    - ``job_broadcast``: rank 0 does, to all others.

    phases: the rank's log, for the phase ``stage`` (copying or broadcasting, and waiting for it). reads: the
    `io_counters.SharedReads` that counts. staged: an `contextlib.ExitStack` to be closed when all ranks have loaded.
    """
    match run["parameters"]["staging"]:
        case "none":
            return _load_all(run, run["data"], reads)
        case "local_copy":
            return _load_all(run, _copies(run, ranks, phases, reads, staged), None)
        case "node_broadcast":
            return _broadcast(run, ranks, phases, reads, nodes(ranks))
        case "job_broadcast":
            return _broadcast(run, ranks, phases, reads, [list(range(ranks.size))])
        case other:
            raise StudyError(f"staging: {other!r} is none of none, local_copy, node_broadcast, job_broadcast")


def nodes(ranks):
    """The ranks of each node, a list a node, each in order.

    Of ranks with one host name and one local rank each is on a node of its own: so several nodes can be on one host.
    """
    seen, found = collections.Counter(), {}
    for rank, key in enumerate(ranks.gather((socket.gethostname(), ranks.local_rank))):
        found.setdefault((key[0], seen[key]), []).append(rank)
        seen[key] += 1
    return list(found.values())


def _load_all(run, data, reads):
    """Load all files. data: {file: its paths}. reads: counts, or None where these are not the shared files."""
    loader, forms, loaded = run["parameters"]["loader"], run["benchmark"]["files"], {}
    with reads.counted() if reads else contextlib.nullcontext():
        for file, paths in data.items():
            loaded[file] = _table(loader, paths, forms[file])
            if reads and loader == "mapped":
                for kind in paths.keys() - {"sidecar"}:
                    reads.mapped(paths[kind])
    return loaded


def _table(loader, paths, form):
    described = read_sidecar(paths["sidecar"])
    values = [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        return Table(load(loader, paths["path"], paths["sidecar"], form), values)
    codes, numbers = np.array(map_matrix(paths["codes"])), map_matrix(paths["path"])
    (rows, columns), number = described["shape"], len(values)
    if (codes.shape, numbers.shape) != ((rows, number), (rows, columns - number)):
        raise StudyError(
            f"{paths['path']}: {numbers.shape} are not the numbers that {paths['sidecar']} tells of, "
            f"{(rows, columns - number)}; delete it, and it is made again"
        )
    return Table(codes, values, numbers)


def _copies(run, ranks, phases, reads, staged):
    """The files' paths, those of the node's copies in place of those that all nodes share."""
    with phases("stage"):
        (mine,) = (members for members in nodes(ranks) if ranks.rank in members)
        copies = _copied(run, reads, staged) if ranks.rank == mine[0] else None
        copies = ranks.gather(copies)[mine[0]]
    data = {file: dict(paths) for file, paths in run["data"].items()}
    for file, kind, path, identity in copies:
        if not Path(path).exists() or _identity(path) != identity:
            raise StudyError(
                f"{socket.gethostname()}: rank {ranks.rank} does not see the copy that rank {mine[0]} made ({path}), "
                "as where each rank has a container of its own; use staging: node_broadcast"
            )
        data[file][kind] = path
    return data


def _copied(run, reads, staged):
    """Copy the files to the node's own storage; a list of (file, "path" or "codes", the copy's path, its identity).

    The copies have no name, so nothing of them is left however this process ends; others reach them through it.
    """
    folder, copies = _node_storage(run["machine"]["node_storage"]), []
    for file, paths in run["data"].items():
        for kind in (kind for kind in paths if kind != "sidecar"):
            with open(paths[kind], "rb") as source, reads.counted():
                target = staged.enter_context(_copy(source, folder))
            path = f"/proc/{os.getpid()}/fd/{target.fileno()}"
            copies.append((file, kind, path, _identity(path)))
    return copies


def _node_storage(named):
    """The folder that the machine's file names, variables put in."""
    folder = os.path.expandvars(named or "")
    if not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise StudyError(
            f"{socket.gethostname()}: {folder!r} is no folder here with an absolute path (node_storage in the "
            f"machine's file: {named})"
        )
    return folder


def _copy(source, folder):
    """A nameless copy of an open file in ``folder``, open. Its space is taken before it is filled."""
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


def _identity(path):
    """What tells a file from any other."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_size


def _broadcast(run, ranks, phases, reads, groups):
    """The first rank of each group loads, the others of the group get its matrices."""
    (mine,) = (members for members in groups if ranks.rank in members)
    is_reader = ranks.rank == mine[0]
    loaded = _load_all(run, run["data"], reads) if is_reader else {}
    with phases("stage"):
        ranks.split(groups)
        for file, paths in run["data"].items():
            if not is_reader:
                with reads.counted():
                    loaded[file] = _empty(paths)
            for matrix in (loaded[file].matrix, loaded[file].scaled):
                if matrix is not None:
                    ranks.broadcast_matrix(matrix, mine)
    return loaded


def _empty(paths):
    """A `Table` for what is yet to come."""
    described = read_sidecar(paths["sidecar"])
    (rows, columns), values = described["shape"], [code["values"] for code in described["codes"]]
    if "codes" not in paths:
        return Table(np.empty((rows, columns), np.float32), values)
    numbers = np.empty((rows, columns - len(values)), np.float32)
    return Table(np.empty((rows, len(values)), np.float32), values, numbers)
