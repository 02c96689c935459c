"""What counts as a rank's progress, and what does not."""

import threading
import time

import pytest

from study.instruments import heartbeats

MB = 1_000_000


class Phases:
    current = "load"


@pytest.fixture
def heartbeat(tmp_path):
    found = heartbeats.Heartbeat(tmp_path, limit_s=1e6)
    found.phases = Phases()
    return found


def went_on(heartbeat, work):
    before = heartbeat._read_progress()
    work()
    return heartbeat._has_progressed(before, heartbeat._read_progress())


def test_a_rank_whose_load_stands_still_gives_no_sign(heartbeat):
    """As on a file system that no longer answers: looking at the counts is not reading."""

    def look_often():
        for _ in range(3):
            time.sleep(0.1)
            heartbeat._read_progress()

    assert not went_on(heartbeat, look_often)


def test_the_work_of_horovod_s_threads_is_no_sign(heartbeat):
    """They take up to half a core while a rank waits for the others, or for a file."""
    ended = threading.Event()

    def work():
        while not ended.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert went_on(heartbeat, lambda: time.sleep(0.5))
        heartbeat.ignored = {thread.native_id}
        assert not went_on(heartbeat, lambda: time.sleep(0.5))
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("before", "after", "is_sign"),
    [
        (("load", None, 0, 0, 0), ("preprocess", None, 1, 0, 0), True),
        (("train", 4, 0, 0, 0), ("train", 5, 1, 0, 0), True),
        (("train", 4, 0, 0, 0), ("train", 4, 1, 1, MB), False),
        (("broadcast", None, 0, 0, 0), ("broadcast", None, 1, 1, MB), False),
    ],
)
def test_phases_and_steps(before, after, is_sign):
    assert heartbeats.Heartbeat._has_progressed(before, after) == is_sign


def test_work_within_a_step_is_progress_of_a_rank_that_waits_for_no_other():
    before, after = ("train", 4, 0, 0, 0), ("train", 4, 1, 1, 0)
    assert not heartbeats.Heartbeat._has_progressed(before, after)
    assert heartbeats.Heartbeat._has_progressed(before, after, heartbeats.BUSY_PHASES | {"train"})
