"""Checkpoints are whole or absent, the last two stay, and only those of the very run are gone on from."""

import numpy as np
import pytest

from study.training import checkpoints

LABELS = {"parameters": {"gpus": 2}, "dataset": {"id": "a"}}
SHAPES = {"0000 kernel": (2, 3), "0001 step": ()}


def save(folder, epochs, labels=LABELS):
    writer = checkpoints.Writer(folder, 1, labels)
    for epoch in epochs:
        state = dict(zip(SHAPES, [np.full((2, 3), epoch, dtype=np.float32), np.asarray(epoch)], strict=True))
        writer.save(epoch, state, [{"epoch": each} for each in range(1, epoch + 1)])
    writer.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_latest_comes_back_as_it_was(tmp_path):
    save(tmp_path, [1, 2, 3])
    epoch, state, history = checkpoints.read_latest(tmp_path, LABELS, SHAPES)
    assert (epoch, state["0000 kernel"].tolist(), int(state["0001 step"])) == (3, [[3.0] * 3] * 2, 3)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert names(tmp_path) == ["epoch-000002.npz", "epoch-000003.npz"]


def test_when_one_is_due():
    assert [checkpoints.Writer("x", 3, {}).is_due(epoch) for epoch in range(1, 7)] == [False, False, True] * 2
    assert not checkpoints.Writer("x", 0, {}).is_due(1)


@pytest.mark.parametrize(
    ("labels", "shapes"),
    [
        ({**LABELS, "dataset": {"id": "b"}}, SHAPES),
        (LABELS, SHAPES | {"0000 kernel": (2, 4)}),
        (LABELS, {"0000 kernel": (2, 3)}),
        (LABELS, {"0000 kernel": (2, 3), "0001 bias": ()}),
    ],  # fmt: skip
)
def test_another_run_s_is_passed_over(tmp_path, labels, shapes):
    save(tmp_path, [1])
    assert checkpoints.read_latest(tmp_path, labels, shapes) is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "not an archive"])
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path, damage):
    save(tmp_path, [1, 2])
    path = tmp_path / "epoch-000002.npz"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[content.index(b"array_0.npy") + 150] ^= 0xFF
    path.write_bytes({"cut": content[:-40], "flipped": content, "empty": b"", "not an archive": b"hello"}[damage])
    assert checkpoints.read_latest(tmp_path, LABELS, SHAPES)[0] == 1


def test_a_disk_that_is_full_is_told_and_leaves_nothing_half(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    save(tmp_path, [1])
    monkeypatch.setattr(np, "savez", full)
    writer = checkpoints.Writer(tmp_path, 1, LABELS)
    writer.save(2, {"kernel": np.zeros((2, 3), np.float32)}, [])
    with pytest.raises(OSError, match="No space left"):
        writer.close()
    assert names(tmp_path) == ["epoch-000001.npz"]
    assert checkpoints.read_latest(tmp_path, LABELS, SHAPES)[0] == 1


def test_each_member_of_an_ensemble_has_a_folder_of_its_own(tmp_path):
    first, second = (checkpoints.locate_folder(tmp_path, number) for number in (0, 1))
    save(first, [1, 2])
    save(second, [1])
    assert [checkpoints.read_latest(each, LABELS)[0] for each in (first, second)] == [2, 1]
    assert checkpoints.read_latest(checkpoints.locate_folder(tmp_path), LABELS) is None, "they are not the run's"
