"""Signals: ignored ones stay ignored, and whoever waits for Snakemake hands the others on and leaves nothing behind."""

import ast
import os
import signal
import subprocess
import sys
import time

import pytest
from tracked import ours

from study.core import signals
from study.core.paths import ROOT

# As Snakemake: at SIGTERM it begins no further job, and ends with the one at work; its job is a child.
SNAKEMAKE = """
import os, signal, subprocess, sys
came = []
for each in (signal.SIGTERM, signal.SIGINT):
    if signal.getsignal(each) is not signal.SIG_IGN:
        signal.signal(each, lambda number, _: came.append(signal.Signals(number).name))
job = subprocess.Popen([sys.executable, "-c", "import time; print('job', flush=True); time.sleep(float(%r))"])
code = job.wait()
print("ended", code, *sorted(set(came)), flush=True)
sys.exit(bool(came))
"""
STARTS = "import sys; from study.workflow import passes; sys.exit(passes.run_snakemake([sys.executable, '-c', %r]))"


def started(job_s, ignored=()):
    """A process that waits for a stand-in for Snakemake with a job of so many seconds, once the job is at work."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    process = subprocess.Popen(
        [sys.executable, "-c", STARTS % (SNAKEMAKE % job_s)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ignore, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "job\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_snakemake_whose_job_ends_in_order(number):
    process = started(1)
    process.send_signal(number)
    told, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert told == "ended 0 SIGTERM\n"
    assert f"{number.name}: Snakemake ends when the runs at work have ended" in errors


def test_a_second_signal_ends_the_job():
    process, begun = started(60), time.monotonic()
    process.terminate()
    assert "a second signal ends them now" in process.stderr.readline()
    process.terminate()
    told, _ = process.communicate(timeout=60)
    assert told in (f"ended {-signal.SIGTERM} SIGTERM\n", f"ended {-signal.SIGTERM} SIGINT SIGTERM\n")
    assert process.returncode == 128 + signal.SIGTERM and time.monotonic() - begun < 50


def test_snakemake_ends_in_order_where_the_process_that_waits_is_killed():
    process = started(1)
    process.kill()
    assert process.communicate(timeout=60)[0] == "ended 0 SIGTERM\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number):
    process = started(1, ignored=[number])
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "ended 0\n" and process.returncode == 0


def test_handlers_are_put_back():
    before, former = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with signals.replace_handlers(signals.exit_on_signal):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(SystemExit) as ended:
                os.kill(os.getpid(), signal.SIGTERM)
            assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == former
    finally:
        signal.signal(signal.SIGHUP, before)


# A handler there is for a signal of the project itself, or takes nothing from the ignored.
OF_THEIR_OWN = {
    "scripts/study/core/signals.py",
    "scripts/study/machines/guard.py",  # the launch ends ranks by SIGTERM, also if the launch ignores its own
    "scripts/study/machines/remote.py",  # below a guard
    "scripts/sample_power.py",  # they ignore signals
    "scripts/study/workloads/command/patterns.py",  # of a timer
}


def test_handlers_are_installed_in_one_place():
    places = [*(ROOT / "scripts").rglob("*.py"), *(ROOT / "performance").rglob("*.py")]
    calls = {
        str(path.relative_to(ROOT))
        for path in ours(places)
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("signal.signal", "signal.sigaction")
    }
    assert calls == OF_THEIR_OWN, "install it by study.core.signals.set_handlers, which leaves ignored signals alone"
