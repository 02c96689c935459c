"""The message of a failed run is the cause: of errors of several lines, of chains, and of several ranks."""

import re

import pytest

from study.launch import failure
from study.launch.failure import diagnose_failure

USER_CODE = """Traceback (most recent call last):
  File "/s/train.py", line 60, in <module>
    roles.run_process(main)
ValueError: in user code:

    File "/k/training.py", line 1401, in train_function  *
        return step_function(self, iterator)
    File "/h/gradient_aggregation_eager.py", line 73, in compute_gradients
        raise ValueError(

    ValueError: IndexedSlices are not supported when `backward_passes_per_step` > 1 and
    `sparse_as_dense` is False.

"""
CHAIN = """Traceback (most recent call last):
  File "a.py", line 2, in <module>
KeyError: 'site'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
RuntimeError: the table cannot be read
"""
FOLLOWER = """Traceback (most recent call last):
  File "/s/train.py", line 60, in <module>
tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:

Detected at node HorovodAllreduce defined at (most recent call last):
  File "/s/train.py", line 60, in <module>

Horovod has been shut down. This was caused by an exception on one of the ranks.
\t [[{{node HorovodAllreduce}}]] [Op:__inference_train_function_901]
"""

READER = """Traceback (most recent call last):
  File "/s/train.py", line 60, in <module>
study.ensembles.buffer.Lost: another rank of this node, which writes blocks, has failed
"""


@pytest.fixture(autouse=True)
def _phases(tmp_path):
    (tmp_path / "phases.jsonl").write_text("")


def of_rank(rank, text):
    return [f"[{rank}]<stderr>:{line}" for line in text.splitlines()]


@pytest.mark.parametrize("ended", ["Process 0 exit with status code 1.", "Process 1 exit with status code 1.", ""])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("follower", [FOLLOWER, READER])
def test_the_first_cause_is_not_a_followers(tmp_path, order, ended, follower):
    """Rank 0 hears of rank 1's error, and may end or be printed before it."""
    texts = {0: follower, 1: USER_CODE}
    lines = [line for rank in order for line in of_rank(rank, texts[rank])]
    found = diagnose_failure(tmp_path, 1, None, [*lines, ended])
    assert found["rank"] == 1
    assert found["message"].startswith("ValueError: IndexedSlices")


def test_an_error_that_a_rank_tells_comes_first(tmp_path):
    lines = [*of_rank(0, FOLLOWER), *of_rank(1, "error: no room")]
    assert diagnose_failure(tmp_path, 1, None, lines)["message"] == "error: no room"


@pytest.mark.parametrize("tag", ["[1,0]<stderr>:", "[0]<stderr>:[1,0]<stderr>:", "[rank0]: "])
def test_a_commands_own_error_comes_before_the_last_words_of_its_launcher(tmp_path, tag):
    error = ["Traceback (most recent call last):", '  File "a.py", line 8', "TypeError: unexpected keyword 'run'"]
    end = "error: the program ended with exit code 1; its last lines: mpirun detected | Exit code: 1"
    told = diagnose_failure(tmp_path, 1, None, [*(f"{tag}{line}" for line in error), "mpirun detected", end])["message"]
    assert told.startswith("error: the program ended with exit code 1: TypeError: unexpected keyword 'run'; its last")
    assert diagnose_failure(tmp_path, 1, None, ["mpirun detected", end])["message"] == end


def test_ranks_whose_lines_are_mixed(tmp_path):
    one, other = of_rank(0, CHAIN), of_rank(1, FOLLOWER)
    lines = [line for pair in zip(one, other, strict=False) for line in pair] + other[len(one) :]
    assert diagnose_failure(tmp_path, 1, None, lines)["message"].startswith("KeyError: 'site'; then RuntimeError")


@pytest.mark.parametrize(
    "line",
    [
        "mpiexec noticed that process rank 2 with PID 81 on node a exited on signal 9 (Killed).",
        "srun: error: n3: task 2: Killed",
    ],
)
def test_the_rank_that_a_launcher_of_a_job_names(tmp_path, line):
    """The chief tells only that it lost the process."""
    (tmp_path / "phases.jsonl").write_text("")
    lines = ["[1,0]<stderr>:error: another worker has ended: worker 0 (process 2)", line]
    found = diagnose_failure(tmp_path, 137, None, lines)
    assert (found["kind"], found["rank"], found["message"]) == ("killed", 2, line)


def test_the_kernel_s_kill_for_want_of_memory_is_told_from_a_user_s(tmp_path):
    """Slurm's line is of 20.11 and later; without Slurm only the kernel's counter tells (oom_kill in /proc/vmstat)."""
    (tmp_path / "phases.jsonl").write_text("")
    line = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=17020.18. Some of the step tasks have been OOM Killed."
    )
    assert diagnose_failure(tmp_path, 137, None, ["0: epoch 1", line])["kind"] == "oom"
    lines = ["[1]<stdout>:epoch 1", "Process 1 exit with status code 137."]
    assert diagnose_failure(tmp_path, 1, None, lines, 0)["kind"] == "killed"
    found = diagnose_failure(tmp_path, 1, None, lines, 2)
    assert (found["kind"], found["rank"]) == ("oom", 1)
    told = "out of memory: the kernel ended 2 processes of this host meanwhile; exit code 137"
    assert found["message"] == told
    assert diagnose_failure(tmp_path, 1, None, ["ValueError: shapes differ"], 2)["kind"] == "error", "it was not killed"


BUS = "rank 1 ended first: it was ended by signal 7 (SIGBUS)"
FULL = "OSError: [Errno 28] No space left on device: '/tmp/x'"
READ_ONLY = "OSError: [Errno 30] Read-only file system: 'x'"
SHARED = "RuntimeError: DataLoader worker was killed. This might be caused by insufficient shared memory (shm)."


@pytest.mark.parametrize(
    ("lines", "message", "is_full", "right"),
    [
        ([f"[1]<stderr>:{FULL}"], "m", False, FULL),
        (
            ["cp: error writing 'x': Disk quota exceeded"],
            "m",
            True,
            "cp: error writing 'x': Disk quota exceeded; /full",
        ),
        ([READ_ONLY, FULL], "m", False, READ_ONLY),
        ([SHARED], BUS, False, SHARED),
        ([], BUS, True, f"{BUS}; /full"),
        ([], BUS, False, None),
        (["out of resource: shared memory, Required: 9, Hardware limit: 8"], "m", True, None),  # of a GPU
    ],
)
def test_a_lack_of_space_is_no_failure_of_the_run(monkeypatch, lines, message, is_full, right):
    monkeypatch.setattr(failure.free_space, "explain_lack_of_space", lambda folder: folder if is_full else None)
    cause = {"kind": "error", "message": message, "rank": None, "host": None}
    assert failure.find_lack_of_space(cause, lines, ["/full"]) == right
    with_rank = failure.find_lack_of_space({**cause, "rank": 1, "host": "h2"}, lines, ["/full"])
    assert with_rank == (right and f"rank 1 on h2: {right}")


def test_the_words_of_a_native_error_are_in_its_next_line():
    died, own = "terminate called after throwing an instance of 'std::E'", "  what():  no space"
    assert failure._list_errors([died, own, "  what():  more"]) == [(0, f"{died} what():  no space")]
    assert failure._list_errors(["step 7", died, "abort", own]) == [(1, died)]


def test_a_line_of_a_rank_comes_before_one_of_the_launcher():
    lines = ["mpirun: error: lost", "[1]<stderr>:error: of rank 1", "[0]<stderr>:error: later"]
    assert failure._find_first_match(lines, re.compile("error")) == (1, "error: of rank 1")
    assert failure._find_first_match(lines[:1], re.compile("error")) == (None, "mpirun: error: lost")


def test_an_end_by_a_signal_is_told_as_shells_and_as_python_do():
    """128 + 9 and 128 + 15, or -9 and -15; another code is no reason."""
    found = [failure._find_reason(["[2]<stderr>:step 7"], code) for code in (137, 143, -9, -15, 9)]
    assert found == [*(("killed", 2, f"exit code {code}") for code in (137, 143, -9, -15)), None]
