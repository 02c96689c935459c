"""A profile's columns: each function's time counted once, under the function that stands for sc18's."""

import cProfile
import re
import threading
import time
from pathlib import Path

import pytest

from study.core.paths import ROOT
from study.instruments import profiler

FILES = {
    "c_parser_wrapper": "/venv/lib/site-packages/pandas/io/parsers/c_parser_wrapper.py",
    "callbacks": "/venv/lib/site-packages/tf_keras/src/callbacks.py",
    "training": "/venv/lib/site-packages/tf_keras/src/engine/training.py",
    "optimizer": "/venv/lib/site-packages/horovod/_keras/__init__.py",
    "generated": "<string>",
    "communication": "/repository/scripts/study/communication/collectives.py",
}
CODE = {
    "c_parser_wrapper": "def read():\n  sleep(0.02)\n  concatenated()",
    "callbacks": "def on_epoch_end():\n  sleep(0.01)\n  hook()\ndef hook():\n  sleep(0.02)",
    "training": "def fit():\n  sleep(0.03)\n  on_epoch_end()\n  compute_gradients()",
    "optimizer": "def compute_gradients():\n  sleep(0.01)\n  allreduce()\ndef allreduce():\n  horovod_allreduce()",
    "generated": "def horovod_allreduce():\n  sleep(0.02)\ndef horovod_broadcast():\n  sleep(0.01)",
    "communication": "def broadcast_variables():\n  sleep(0.04)\n  horovod_broadcast()",
}


@pytest.fixture
def profiled(tmp_path):
    """A real profile of functions that lie, as far as it can tell, in the libraries' files.

    Its clock is stopped; only ``sleep`` moves it. So the times are exact on a slow machine too.
    """
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    names = {"sleep": sleep, "concatenated": lambda: sleep(0.05)}
    for key, code in CODE.items():
        exec(compile(code, FILES[key], "exec"), names)  # noqa: S102

    def job():
        for function in ("read", "broadcast_variables", "fit"):
            names[function]()

    recorder = profiler.SingleThreadProfile(timer=lambda: clock[0])
    recorder.runcall(job)
    recorder.dump_stats(tmp_path / "profile.pstats")
    return profiler.summarize(tmp_path / "profile.pstats")


def test_columns_by_hand(profiled):
    expected = {
        "method_read_s": 0.0,  # sleep is a function of its own; see the next test
        "keras_callbacks_s": 0.03,
        "horovod_callbacks_s": 0.05,
        "distributed_optimizer_s": 0.03,
        "broadcast_s": 0.01,
        "allreduce_s": 0.02,
        "model_fit_s": 0.09,
        "total_s": 0.21,
    }
    found = {name: profiled[name] for name in expected}
    assert found == pytest.approx(expected)


def test_reading_is_what_the_parser_does_itself(tmp_path):
    """pandas' compiled reader is not seen by cProfile: its time is its caller's own."""
    names = {"work": lambda: sum(range(300_000))}
    exec(
        compile(
            "def read():\n  t = 0\n  for i in range(2_000_000): t += i\n  work()", FILES["c_parser_wrapper"], "exec"
        ),
        names,
    )  # noqa: S102, E501
    recorder = cProfile.Profile()
    begun = time.perf_counter()
    recorder.runcall(names["read"])
    took = time.perf_counter() - begun
    recorder.dump_stats(tmp_path / "p")
    assert 0.5 * took < profiler.summarize(tmp_path / "p")["method_read_s"] < took


def test_another_thread_is_left_out_and_ends_no_function():
    """cProfile of Python 3.12 takes the calls of all threads for those of one, also of one that began before."""
    begin, end = threading.Event(), threading.Event()

    def late():
        end.set()

    def other():
        begin.wait()
        late()

    def inner():
        begin.set()
        end.wait()
        thread.join()

    def job():
        inner()
        time.sleep(0.02)

    thread = threading.Thread(target=other)
    thread.start()
    recorder = profiler.SingleThreadProfile()
    recorder.runcall(job)
    found = {each.code.co_name: each for each in recorder.getstats() if not isinstance(each.code, str)}
    assert "late" not in found and found["job"].callcount == found["inner"].callcount == 1
    assert found["job"].totaltime - found["inner"].totaltime >= 0.02


def test_what_the_profile_does_not_have_is_nothing(profiled):
    assert profiled["tensorflow_s"] is None


def test_the_top_is_by_own_time_and_tells_files_without_their_folders(profiled):
    own = [entry["own_s"] for entry in profiled["top"]]
    assert own == sorted(own, reverse=True)
    assert profiled["top"][0]["function"].endswith(" sleep")
    shown = [entry["function"] for entry in profiled["top"]]
    assert any(re.fullmatch(r"tf_keras/src/engine/training\.py:1 fit", function) for function in shown)
    assert any(
        re.fullmatch(r"study/communication/collectives\.py:1 broadcast_variables", function) for function in shown
    )


def test_each_own_function_of_a_column_is_defined_once_in_the_library():
    """Columns find our functions by name, in whichever module: one that is renamed would silently empty its column.

    A method of a protocol is defined there and by each implementation.
    """
    own = [each.name for functions in profiler.COLUMNS.values() for each in functions if each.file == profiler.OWN]
    assert own
    library = ROOT / "scripts" / "study"
    rooms = ("communication", "backends", "training", "ensembles")
    sources = {path.as_posix(): path.read_text() for room in rooms for path in (library / room).rglob("*.py")}
    for name in own:
        found = [module for module, source in sources.items() for _ in re.findall(rf"^ +def {name}\(", source, re.M)]
        where = sorted(Path(path).stem for path in found)
        averaging = ["gradient_averaging", "gradient_averaging", "horovod"]
        assert where == averaging if "broadcast" in name else len(where) == 1, name
