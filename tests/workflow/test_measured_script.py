"""study measure, from a folder with a script to the answer; each call a process of its own, as a user's."""

import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from project import ROOT, WAIT_S

SCRIPT = """
import os, time
ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
open("../started", "a").write(f"{ranks} ")
time.sleep(1.5 / ranks)
if rank == 0:
    open("model.pt", "w").write("weights")
    print(f"speed: {10 * ranks}.5 img/s")
    print("complete")
"""
# A block that a busy machine disturbs is not run again.
CALL = """
import sys
from study.commands import main, measured_command
make_files = measured_command.MeasuredCommand.make_files
def make_files_once(self):
    files = make_files(self)
    files["config/machines/here.yaml"]["repeat_disturbed"] = 0
    return files
measured_command.MeasuredCommand.make_files = make_files_once
main.main()
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a space in its name, as only the user's script has it."""
    folder = tmp_path / "my scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


VARIABLES = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}


def call_study(folder, *arguments):
    line = [sys.executable, "-c", CALL, *arguments]
    return subprocess.run(line, cwd=folder, env=VARIABLES, capture_output=True, text=True, timeout=WAIT_S)


def call_measure(folder, *arguments):
    return call_study(folder, "measure", *arguments)


def words_of(text):
    return " ".join(text.split())


def test_one_line_gives_an_answer_and_the_same_line_adds_to_it(folder):
    line = ["--ranks", "1,2", "--metric", "throughput_samples_per_s=speed: ([0-9.]+) img/s", "--success", "complete"]
    done = call_measure(folder, *line, "--repeats", "1", "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert "throughput_samples_per_s 10.5" in done.stderr, "of the trial"
    assert "files that it wrote, moved aside before each run: model.pt" in done.stderr
    assert (folder.parent / "started").read_text().split() == ["1", "1", "2", "2"], "the trial, and a run on each count"
    done = call_measure(folder, *line, "--repeats", "2", "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert len((folder.parent / "started").read_text().split()) == 7, "one more run on each count, and no other trial"
    (table,) = folder.glob("scaling/results/*/here/studies/train/runs.csv")
    runs = pd.read_csv(table).sort_values(["gpus", "repeat"])
    assert runs["status"].tolist() == ["ok"] * 4 and runs["unproven"].isna().all()
    assert runs["throughput_samples_per_s"].tolist() == [10.5, 10.5, 20.5, 20.5]
    assert "train: 2 ranks (goal: " in done.stdout or "train: 1 rank (goal: " in done.stdout
    assert done.stdout.startswith("  train: "), "the answer is the first line"
    assert f"Report: {table.with_name('report.html').relative_to(folder)}" in done.stdout
    assert "After block 1 of 2" in done.stderr or "block" not in done.stderr
    sentence = words_of(done.stdout.partition("That the runs did their work")[0])
    recommended = call_study(folder / "scaling", "recommend", "train")
    assert recommended.returncode == 0, recommended.stderr
    assert sentence in words_of(recommended.stdout), "the folder is a study, as if written by hand, of the same answer"
    page = words_of(re.sub("<[^>]*>", " ", table.with_name("report.html").read_text()))
    assert re.search(r"[0-9]+ ranks get the work done [0-9.]+ times as fast as 1", sentence)[0] in page


def test_a_trial_that_fails_or_shows_no_work_ends_the_measurement(folder):
    """Nothing of it is kept, so a mended script is tried again."""
    done = call_measure(folder, "--ranks", "1,2", "python", "train.py")
    assert done.returncode == 1 and done.stdout == ""
    assert "error: the trial ended with exit code 0, which alone shows no work" in done.stderr
    (folder / "train.py").write_text("raise SystemExit('no data here')\n")
    done = call_measure(folder, "--ranks", "1,2", "--success", "complete", "python", "train.py")
    assert done.returncode == 1
    assert "error: the trial failed: " in done.stderr and "no data here" in done.stderr
    assert not list(folder.glob("scaling/trial/*"))


SLOW = """
import os, time
if os.environ["RANK"] == "0":
    open("../started", "a").write("x")
    time.sleep(2)
    open("../ended", "a").write(os.environ["WORLD_SIZE"] + " ")
    print("complete")
"""


def count_letters(path):
    return path.read_text().count("x") if path.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize("moments", [(1,), (2, 4), (5,)], ids=["in the trial", "in two runs", "at the last run"])
def test_what_is_interrupted_by_ctrl_c_goes_on_with_the_same_line(folder, moments):
    """SIGINT to the process group, as of a terminal, while the n-th start of the script runs; then the line again."""
    (folder / "train.py").write_text(SLOW)
    line = ["measure", "--ranks", "1,2", "--repeats", "2", "--success", "complete", "python", "train.py"]
    started, ended = folder.parent / "started", folder.parent / "ended"
    for moment in moments:
        process = subprocess.Popen(
            [sys.executable, "-c", CALL, *line], cwd=folder, env=VARIABLES, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run behind an &
        )  # fmt: skip
        deadline = time.monotonic() + WAIT_S
        while count_letters(started) < moment:
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=WAIT_S)[1]
        assert process.returncode == 128 + signal.SIGINT, told
        assert "Traceback" not in told
    done = call_study(folder, *line)
    assert done.returncode == 0, done.stderr
    assert sorted(ended.read_text().split()) == ["1", "1", "1", "2", "2"], "the trial and each run came to its end once"
    (table,) = folder.glob("scaling/results/*/here/studies/train/runs.csv")
    runs = pd.read_csv(table)
    assert sorted(zip(runs["gpus"], runs["repeat"], strict=True)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert runs["status"].eq("ok").all() and runs["unproven"].isna().all()
