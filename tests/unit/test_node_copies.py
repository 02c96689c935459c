"""A node's own copies: whole and checked, removed in any case, and never those of another run."""

import os
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from study.core.errors import StudyError
from study.core.files import sha256
from study.data.images import formats
from study.instruments.counters import ReadCounter
from study.training import node_copies
from study.training.node_copies import NodeCopies

DRAWN = np.random.default_rng(3)
CONTENTS = {"a/1.bin": DRAWN.bytes(3_000_000), "a/2.bin": b"", "b.bin": DRAWN.bytes(1000)}
KEY = "node_storage"


@pytest.fixture
def shared(tmp_path):
    """A folder of files, and one file."""
    for name, content in CONTENTS.items():
        path = tmp_path / "shared" / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "shared" / "file").write_bytes(b"one")
    return tmp_path / "shared"


@pytest.fixture
def node(tmp_path):
    (tmp_path / "node").mkdir()
    return tmp_path / "node"


def test_copies_are_whole_and_leave_nothing(shared, node):
    reads, paths = ReadCounter(), [str(shared / "folder"), str(shared / "file")]
    copies = NodeCopies(str(node), KEY)
    copies.add([*paths, paths[0]], reads)
    assert list(copies.copies) == paths, "what is given twice is copied once"
    for name, content in CONTENTS.items():
        assert Path(copies.copies[paths[0]], name).read_bytes() == content
    assert Path(copies.copies[paths[1]]).read_bytes() == b"one"
    assert copies.size == 3_001_003
    assert 3_001_003 <= reads.asked < 3_010_000, "reading the copies to check them does not count"
    copies.remove()
    copies.remove()
    assert list(node.iterdir()) == []


def test_two_runs_on_one_node_have_copies_of_their_own(shared, node):
    one, two = NodeCopies(str(node), KEY), NodeCopies(str(node), KEY)
    for each in (one, two):
        each.add([str(shared / "file")], ReadCounter())
    two.remove()
    assert Path(one.copies[str(shared / "file")]).read_bytes() == b"one"


KILLED = """
import sys, time
from study.instruments.counters import ReadCounter
from study.training.node_copies import NodeCopies
copies = NodeCopies(sys.argv[1], "node_storage")
copies.add([sys.argv[2]], ReadCounter())
print(copies.folder, flush=True)
time.sleep(60)
"""


def test_what_a_killed_run_left_is_removed_and_never_used(shared, node):
    line = [sys.executable, "-c", KILLED, str(node), str(shared / "file")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as other:
        left = Path(other.stdout.readline().strip())
        NodeCopies(str(node), KEY).remove()
        assert left.is_dir(), "its run is alive"
        other.send_signal(signal.SIGKILL)
    next(left.rglob("file")).write_bytes(b"cut")  # whatever it was: an incomplete copy
    copies = NodeCopies(str(node), KEY)
    assert [path.name for path in node.iterdir()] == [Path(copies.folder).name]
    copies.add([str(shared / "file")], ReadCounter())
    assert Path(copies.copies[str(shared / "file")]).read_bytes() == b"one"


def test_a_storage_with_too_little_room_is_told_before_anything_is_copied(shared, node, monkeypatch):
    found = os.statvfs(node)
    small = os.statvfs_result([*found[:4], 1_000_000 // found.f_frsize, *found[5:]])
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    copies = NodeCopies(str(node), KEY)
    expected = (
        rf"the run's files \(3 MB\) cannot be copied to {node} \(node_storage in the machine's file\): No space left"
    )
    with pytest.raises(StudyError, match=expected + " on device: 1 MB are free"):
        copies.add([str(shared / "folder")], ReadCounter())
    assert list(Path(copies.folder).iterdir()) == []


@pytest.mark.parametrize("call", ["posix_fallocate", "fdatasync"])
def test_a_storage_that_fills_or_fails_while_it_is_written(shared, node, monkeypatch, call):
    def failed(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, failed)
    with pytest.raises(StudyError, match=r"\.bin \([03] MB\) cannot be copied to .*: Input/output error"):
        NodeCopies(str(node), KEY).add([str(shared / "folder")], ReadCounter())


def test_a_copy_that_differs_is_refused(shared, node, monkeypatch):
    """A storage that gives other bytes back: simulated by changing the file before it is read back."""
    synced = os.fdatasync

    def damaged(descriptor):
        synced(descriptor)
        os.pwrite(descriptor, b"\0\0\0\0", 1_000_000)

    monkeypatch.setattr(os, "fdatasync", damaged)
    right = zlib.crc32(CONTENTS["a/1.bin"])
    with pytest.raises(StudyError, match=f"the copy has 3000000 bytes with CRC-32 .*, not 3000000 with {right:08x}"):
        NodeCopies(str(node), KEY).add([str(shared / "folder")], ReadCounter())


def test_more_shards_than_the_soft_limit_of_open_files(tmp_path):
    """ImageNet has a thousand shards, and a process may often have 1,024 open files."""
    shards = [tmp_path / f"shard-{number:05d}.tfrecord" for number in range(60)]
    for path in shards:
        path.write_bytes(b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    images = formats.TFRecords(tmp_path, {"shard": np.arange(60)})
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
        assert images.keep_open()
    finally:
        images.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_folder_that_is_removed_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    """A run that starts at the same moment may take it for left over."""
    make, made = node_copies.tempfile.mkdtemp, []

    def removed_once(**given):
        made.append(make(**given))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(node_copies.tempfile, "mkdtemp", removed_once)
    folder, descriptor = node_copies._make_locked_folder(str(tmp_path))
    os.close(descriptor)
    assert (folder, len(made)) == (made[1], 2)


def test_an_original_that_reads_as_zeros_is_not_trained_on(shared, node):
    """As with openzfs 15526: the size and the times are right, and its copy equals what was read."""
    path = shared / "folder" / "b.bin"
    checksum = sha256(path)
    copies = NodeCopies(str(node), KEY)
    copies.add([str(path)], ReadCounter(), {str(path): checksum})
    path.write_bytes(bytes(path.stat().st_size))
    copies.remove()
    copies = NodeCopies(str(node), KEY)
    with pytest.raises(StudyError, match=r"b\.bin: was changed after its conversion; delete it"):
        copies.add([str(path)], ReadCounter(), {str(path): checksum})
    copies.remove()
