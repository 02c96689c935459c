"""Any change of a user's files has the data converted again, and with them the runs trained; no change, nothing."""

import gzip
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study.core.files import write_sealed
from study.data import source_state
from study.data.images.layouts import Source

CONTENT = "".join(f"{row % 2},{row * 7}.25\n" for row in range(400)).encode()  # more than a block


def table(root):
    """One file."""
    (root / "t.csv").write_bytes(CONTENT)
    return lambda: [str(root / "t.csv")]


def archive(root):
    """One compressed file."""
    (root / "t.csv.gz").write_bytes(gzip.compress(CONTENT, mtime=0))
    return lambda: [str(root / "t.csv.gz")]


def of_images(layout, path):
    """As the plan asks for the files of images."""

    return lambda: Source(layout, str(path)).read_files


def folder(root):
    """A folder of classes, one with an inner folder."""
    for name in ("a/0.jpg", "a/inner/1.jpg", "b/0.jpg", "b/1.jpg"):
        path = root / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT + name.encode())
    return of_images("folder", root / "images")


def listed(root):
    """The files of a pattern."""
    for number in range(3):
        (root / f"x-{number}").write_bytes(CONTENT + b"%d" % number)
    return of_images("tfrecord", root / "x-*")


def pair(root):
    """Images and their labels."""
    (root / "train-images-idx3").write_bytes(CONTENT)
    (root / "train-labels-idx1").write_bytes(CONTENT[:100])
    return of_images("mnist", root / "train-images-idx3")


def linked(root):
    """A link to a folder of classes."""
    (root / "v1").mkdir()
    folder(root / "v1")
    (root / "current").symlink_to("v1")
    return of_images("folder", root / "current" / "images")


SOURCES = {"file": table, "archive": archive, "folder": folder, "list": listed, "pair": pair, "link": linked}


def rewritten(path, content):
    """Write a file and keep its times."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    rewritten(path, bytes(content))


def moved_aside(path, place):
    shutil.copy2(path, path.with_name(".aside"))
    os.replace(path.with_name(".aside"), path)


# {name: (what is done to one of the files, whether the data are then others)}
OF_A_FILE = {
    "one byte": (flipped, True),
    "one byte more": (lambda path, place: rewritten(path, path.read_bytes() + b"x"), True),
    "cut off": (lambda path, place: rewritten(path, path.read_bytes()[: 1 + place % 50]), True),
    "the same again": (lambda path, place: rewritten(path, path.read_bytes()), False),
    "a copy in its place": (moved_aside, False),
    "permissions": (lambda path, place: path.chmod(0o600), False),
}
OF_SEVERAL = {
    "removed": (lambda path, place: path.unlink(), True),
    "renamed": (lambda path, place: path.rename(path.with_name(f"{path.name}9")), True),
    "added": (lambda path, place: shutil.copy2(path, path.with_name(f"{path.name}7")), True),
    "hidden file": (lambda path, place: path.with_name(".DS_Store").write_bytes(b"x"), False),
}
OF_FOLDERS = {
    "class added": (lambda path, place: (_classes(path) / "c").mkdir(), True),
    "class removed": (lambda path, place: shutil.rmtree(_classes(path) / "b"), True),
    "class renamed": (lambda path, place: (_classes(path) / "b").rename(_classes(path) / "A"), True),
    "image beside the classes": (lambda path, place: shutil.copy2(path, _classes(path) / "stray.jpg"), True),
    "into an inner folder": (lambda path, place: path.rename(_classes(path) / "a" / "inner" / "z.jpg"), True),
}


def _classes(path):
    return next(parent for parent in path.parents if parent.name == "images")


def now(found):
    source_state._read_state_once.cache_clear()  # a process of Snakemake looks once
    return found()


def noted(sidecar, found, token=None):
    """A sidecar as a conversion leaves it."""
    paths = found()
    note = source_state.make_note(source_state.read_state(paths), paths, token)
    write_sealed(sidecar, {"shape": [1, 1], "source": {"bytes": 1, "sha256": ""}, "read": note})


@pytest.mark.slow
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_change_and_no_change(tmp_path_factory, kind, is_large, data):
    """Of a large source blocks of the content are compared; they cover these files."""
    root = tmp_path_factory.mktemp("source")
    found, sidecar = SOURCES[kind](root), root / "sidecar.json"
    changes = {**OF_A_FILE, **(OF_SEVERAL if kind not in ("file", "archive", "pair") else {}),
               **(OF_FOLDERS if kind in ("folder", "link") else {})}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_state, "MOST_BYTES", 0 if is_large else 10**6)
        noted(sidecar, found)
        paths = now(found)
        assert source_state.choose_token(paths, sidecar) is None
        files = [path for each in map(Path, paths) for path in ([each] if each.is_file() else sorted(each.rglob("*")))]
        chosen = data.draw(st.sampled_from([path for path in files if path.is_file()]), label="file")
        name = data.draw(st.sampled_from(sorted(changes)), label="change")
        change, is_other = changes[name]
        change(chosen, data.draw(st.integers(0, 10**6), label="place"))
        paths = now(found)
        token = source_state.choose_token(paths, sidecar)
        assert (token is not None) == is_other
        noted(sidecar, found, token)
        paths = now(found)
        assert source_state.choose_token(paths, sidecar) == token, "once"


@pytest.mark.parametrize(("limit", "is_other"), [(10**6, False), (0, True)])
def test_another_time_alone_counts_only_where_content_is_not_compared(tmp_path, monkeypatch, limit, is_other):
    monkeypatch.setattr(source_state, "MOST_BYTES", limit)
    found = listed(tmp_path)
    noted(tmp_path / "sidecar.json", found)
    os.utime(tmp_path / "x-1", (1, 1))
    assert (source_state.choose_token(now(found), tmp_path / "sidecar.json") is not None) == is_other


def test_a_large_file_that_another_replaces_with_its_size_and_time(tmp_path, monkeypatch):
    """Each block of 4 kB that is read is elsewhere in a file of 4 MB; what lies between them is not seen."""
    monkeypatch.setattr(source_state, "MOST_BYTES", 10**6)
    found, path = table(tmp_path), tmp_path / "t.csv"
    path.write_bytes(CONTENT * 1000)
    noted(tmp_path / "sidecar.json", found)
    rewritten(path, CONTENT.replace(b"25", b"75") * 1000)
    assert source_state.choose_token(now(found), tmp_path / "sidecar.json")
