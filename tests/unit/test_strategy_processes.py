"""The processes of a parameter server, played by small programs: their ends, their channel, and what is refused."""

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
from examples import expand

from study.backends.tensorflow import shards
from study.communication import channel
from study.communication.channel import Channel
from study.communication.roles import CHIEF_ENDED, Place
from study.core.errors import StudyError
from study.data.images.source import Reader
from study.experiment.parameters import strategy
from study.instruments import counters
from study.launch import failure, processes
from study.launch.spots import HERE, Process, Spot
from study.machines import probe, remote
from study.machines.run_layout import Role, list_roles

OWN = """import json, os, signal, sys, time
number = json.loads(os.environ["STUDY_PROCESS"])[0]
task = json.loads(os.environ["TF_CONFIG"])["task"]
name = task["type"] + str(task["index"])
"""


# Runs the command here; it is written down without the host's variables, which a host over ssh has not from here.
SSH = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != elsewhere ]; do shift; done
echo "Welcome to elsewhere"
exec 3<&0
env -u ONLY_HERE setsid sh -c "$2" <&3 &
wait $!
"""
ELSEWHERE = Spot("elsewhere", "127.0.0.1", "lo")


def run_all(folder, code, workers=2, servers=1, strategy="parameter_server", spots=None):
    folder.mkdir(exist_ok=True)
    (folder / "phases.jsonl").write_text("")
    code = processes.run_all(list_roles(strategy, workers, servers), folder, [sys.executable, "-c", OWN + code], spots)
    return code, processes.read_process_results(folder)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """ssh leads to this host under another name; returns what it is called with."""
    program, log = tmp_path / "bin" / "ssh", tmp_path / "ssh.log"
    program.parent.mkdir()
    program.write_text(SSH.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("ONLY_HERE", "secret")
    monkeypatch.setenv("OF_THE_RUN", "given")
    monkeypatch.setenv(remote.SENT, json.dumps({"names": ["OF_THE_RUN"], "without": ["TF_"]}))
    return log


def test_processes_on_other_hosts_have_the_run_s_variables_and_their_own(tmp_path, elsewhere, capfd):
    said = """
told = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"], json.loads(os.environ["STUDY_PROCESS"])[2]
print(name, os.environ.get("ONLY_HERE"), os.environ["OF_THE_RUN"], os.environ["NCCL_SOCKET_IFNAME"], *told)
time.sleep(0 if name == "chief0" else 0.3)
"""
    code, told = run_all(tmp_path, said, 1, 1, spots=[Spot(None, "127.0.0.1", "lo"), ELSEWHERE, ELSEWHERE])
    assert (code, told["lost"]) == (0, [])
    assert [each["host"] for each in told["processes"]] == [None, "elsewhere", "elsewhere"]
    lines = sorted(line for line in capfd.readouterr().out.splitlines() if "Welcome" not in line)
    assert [line.split()[:4] for line in lines] == [
        ["[0]<stdout>:chief0", "secret", "given", "lo"],
        ["[1]<stdout>:worker0", "None", "given", "lo"],
        ["[2]<stdout>:ps0", "None", "given", "lo"],
    ]
    ((server, channel),) = {tuple(line.split()[4:]) for line in lines}
    assert server.startswith("['127.0.0.1:") and channel.startswith("127.0.0.1:")
    assert "secret" not in elsewhere.read_text() and "TF_CONFIG" not in elsewhere.read_text()


def test_what_runs_on_other_hosts_is_ended_there(tmp_path, monkeypatch, elsewhere):
    monkeypatch.setattr(processes, "GRACE_S", 1)
    own = f"open({str(tmp_path)!r} + '/' + name, 'w').write(str(os.getpid())); "
    wait = f"while len(glob.glob({str(tmp_path)!r} + '/[wp]*[01]')) < 3: time.sleep(0.05)"
    code, told = run_all(tmp_path, f"import glob\n{own}\n{wait}\nif number: time.sleep(60)\n", spots=[ELSEWHERE] * 4)
    assert (code, told["lost"]) == (0, [])
    numbers = [int((tmp_path / name).read_text()) for name in ("worker0", "worker1", "ps0")]
    _, left = psutil.wait_procs([psutil.Process(each) for each in numbers if psutil.pid_exists(each)], timeout=5)
    assert left == []


@pytest.mark.parametrize("first", ["chief0", "ps0"])
def test_a_chief_that_fails_is_blamed_and_not_those_that_end_with_it(tmp_path, elsewhere, first):
    """Whose end is told first: both come from another host."""
    ends = f"time.sleep(0 if name == {first!r} else 0.2); sys.exit(1 if number == 0 else {CHIEF_ENDED})"
    code, told = run_all(tmp_path, ends, 1, 1, spots=[ELSEWHERE] * 3)
    assert (code, told["lost"]) == (1, [0])


def test_the_chief_s_end_is_the_end_of_all(tmp_path, capfd):
    started = time.monotonic()
    code, told = run_all(tmp_path, "print(name, 'here'); time.sleep(0 if name == 'chief0' else 0.3)")
    assert (code, told["lost"]) == (0, [])
    assert time.monotonic() - started < processes.GRACE_S
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "[0]<stdout>:chief0 here",
        "[1]<stdout>:worker0 here",
        "[2]<stdout>:worker1 here",
        "[3]<stdout>:ps0 here",
    ]
    assert [each["exit_code"] for each in told["processes"]] == [0, 0, 0, 0]


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("doomed", "kind", "rank", "message", "workers_lost"),
    [
        ("ps0", "killed", 3, "server 0 ended first: signal 9 (SIGKILL)", 0),
        ("chief0", "killed", 0, "chief ended first: signal 9 (SIGKILL)", 0),
        ("worker1", "workers_lost", 2, "worker 1 ended (signal 9 (SIGKILL)), and the run continued without it", 1),
    ],
)
@pytest.mark.parametrize("spots", [None, [ELSEWHERE] * 4])
def test_a_killed_process_is_named(tmp_path, monkeypatch, elsewhere, spots, doomed, kind, rank, message, workers_lost):
    """A server or the chief ends the run; a worker does not: then the chief ends it, later."""
    monkeypatch.setattr(processes, "GRACE_S", 1)
    ends = f"{KILLED} if name == {doomed!r} else time.sleep(1 if name == 'chief0' else 60)"
    code, _ = run_all(tmp_path, ends, spots=spots)
    found = failure.diagnose_failure(tmp_path, code, None, [])
    assert (found["kind"], found["rank"], found["message"]) == (kind, rank, message)
    assert processes.count_lost_workers(tmp_path) == workers_lost
    assert code == (0 if doomed == "worker1" else 137)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "exit code 3"), (-9, "signal 9 (SIGKILL)"), (-34, "signal 34 (SIGRTMIN)"), (-35, "signal 35 (SIGRTMIN+1)"),
        (-63, "signal 63 (SIGRTMIN+29)"), (-64, "signal 64 (SIGRTMAX)"), (-32, "signal 32"),
    ],
)  # fmt: skip
def test_any_signal_is_told(code, words):
    """Real-time signals begin at 34 with glibc, which keeps 32 and 33 for itself (signal(7), nptl(7))."""
    assert processes.describe_exit_code(code) == words


@pytest.mark.parametrize(("told", "code"), [(163, -35), (192, -64), (137, -9), (128, 128), (193, 193), (255, 255)])
def test_a_signal_on_another_host_is_told_by_its_exit_code(told, code):
    popen = SimpleNamespace(poll=lambda: told)
    assert Process(ELSEWHERE, popen).code == code
    assert Process(HERE, popen).code == told


def test_nothing_goes_on_without_any_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 1)
    code, told = run_all(tmp_path, f"{KILLED} if 'worker' in name else time.sleep(600)")
    assert (code != 0, sorted(told["lost"])) == (True, [1, 2])


def test_workers_that_end_at_the_same_moment_are_all_noticed(tmp_path, monkeypatch):
    """Reading the exit codes of the others takes the end of a second worker before the loop has waited for it."""
    asked, read = [], Process.code.fget

    def code(process):
        asked.append(process)
        if len(asked) <= 4:  # of the first that has ended, and then of the others
            time.sleep(0.5)  # meanwhile both have ended
        return read(process)

    monkeypatch.setattr(Process, "code", property(code))
    monkeypatch.setattr(processes, "GRACE_S", 1)
    ended, told = run_all(tmp_path, f"{KILLED} if 'worker' in name else time.sleep(60)")
    assert asked
    assert (ended != 0, sorted(told["lost"])) == (True, [1, 2])


def test_workers_in_step_end_together(tmp_path):
    code, told = run_all(tmp_path, "sys.exit(3) if number else time.sleep(60)", 2, 0, "ddp")
    assert (code, told["lost"]) == (3, [1])


def test_a_process_that_told_its_error_is_quoted(tmp_path):
    code, _ = run_all(tmp_path, "sys.exit(1) if number == 0 else time.sleep(60)")
    log = ["[0]<stderr>:error: the loss is not finite from step 7 on (loss nan); lower the learning rate"]
    found = failure.diagnose_failure(tmp_path, code, None, log)
    assert (found["kind"], found["rank"]) == ("diverged", 0)
    assert found["message"].startswith("error: the loss is not finite from step 7 on")


def channels(number, address=None):
    """Channels of so many processes, here of threads."""
    found = {}

    def make(place):
        found[place] = Channel(Place(place, number, address or f"test-{id(found)}", "key"))

    threads = [threading.Thread(target=make, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [found[place] for place in range(number)]


STRANGER = """
import os, sys
from multiprocessing.connection import Client
os.setuid(int(sys.argv[2]))
address = sys.argv[1].rpartition(":")
for _ in range(1000):
    try:
        stranger = Client((address[0], int(address[2])) if address[1] else chr(0) + sys.argv[1])
        break
    except ConnectionRefusedError:
        continue
print("connected", flush=True)
if sys.argv[3]:
    stranger.send_bytes(sys.argv[3].encode())
sys.stdin.read()
"""


@pytest.mark.parametrize("over_tcp", [False, True])
@pytest.mark.parametrize("says", ["", "nothing that the key says"])
def test_a_stranger_neither_joins_a_channel_nor_keeps_others_out(over_tcp, says, monkeypatch):
    monkeypatch.setattr(channel, "PATIENCE_S", 1)
    (held,) = probe.hold_ports(1)
    address = f"127.0.0.1:{held.getsockname()[1]}" if over_tcp else f"test-stranger-{os.getpid()}"
    both = []
    root = threading.Thread(target=lambda: both.append(Channel(Place(0, 2, address, "key"))), daemon=True)
    root.start()
    line = [sys.executable, "-c", STRANGER, address, "65534" if os.geteuid() == 0 else str(os.geteuid()), says]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout.readline() == b"connected\n"
        one = Channel(Place(1, 2, address, "key"))
        root.join(20)
        assert both and one.place.number == 1
        stranger.stdin.close()
    one.close()
    both[0].close()
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user needs root")
def test_a_process_tells_nothing_to_another_user_who_has_taken_the_channel_s_name():
    address = f"test-taken-{os.getpid()}"
    code = (
        "import os, socket, sys; os.setuid(65534); one = socket.socket(socket.AF_UNIX); one.bind(chr(0) + sys.argv[1])"
    )
    code += "; one.listen(); print('bound', flush=True); print(one.accept()[0].recv(99))"
    line = [sys.executable, "-c", code, address]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout.readline() == "bound\n"
        with pytest.raises(StudyError, match="user 65534 has taken the name"):
            Channel(Place(1, 2, address, "key"))
        assert stranger.stdout.read() == "b''\n"


@pytest.mark.parametrize("over_tcp", [False, True])
def test_a_channel_notices_who_has_gone(over_tcp):
    (held,) = probe.hold_ports(1)
    root, one, two = channels(3, f"127.0.0.1:{held.getsockname()[1]}" if over_tcp else None)
    held.close()
    counted = {*counters._read_sockets()}
    assert bool(counted & root.list_sockets()) == over_tcp
    assert not counted & root.list_sockets() & {*counters.Traffic(root.list_sockets())._read_counters()}
    two.close()
    asked = threading.Thread(target=lambda: one.answer(one.receive() + "!"))
    asked.start()
    assert root.ask("there") == {1: "there!"}
    assert root.lost == {2}
    root.close()
    with pytest.raises(EOFError):
        one.receive()


def test_roles_have_names_and_places():
    cluster = list_roles("parameter_server", 2, 1)
    assert list(map(str, cluster)) == ["chief", "worker 0", "worker 1", "server 0"]
    addresses = ["h:1", "h:2", "h:3", "h:4"]
    variables = Place(3, 4, "c", "k").build_variables(cluster, addresses)
    assert json.loads(variables["TF_CONFIG"]) == {
        "cluster": {"chief": ["h:1"], "worker": ["h:2", "h:3"], "ps": ["h:4"]},
        "task": {"type": "ps", "index": 0},
    }
    assert Place.from_environment(variables) == Place(3, 4, "c", "k", addresses=tuple(addresses))
    place = Place(3, 4, "c", "k", ("a", "a", "b", "b"), tuple(addresses))
    assert Place.from_environment(place.build_variables(cluster, addresses)) == place
    assert [place.count_earlier_on_host(number) for number in range(4)] == [0, 1, 0, 1]
    assert place.list_local_ranks(cluster) == [0, 0], "one worker beside the chief, one beside the server"
    assert list_roles("ddp", 1, 0) == [Role("worker", 0)]


SERVED = {"strategy": "parameter_server", "servers": 1}


@pytest.mark.parametrize(
    ("point", "key", "words"),
    [
        ({"servers": 2}, "servers", "2 servers need strategy: parameter_server"),
        ({"strategy": "parameter_server"}, "servers", "needs 1 or more"),
        ({"server_placement": "min_size"}, "server_placement", "needs strategy: parameter_server"),
        ({**SERVED, "gpus": 2, "trace": True}, "strategy", "trace: the timeline is Horovod's"),
        ({**SERVED, "emulated_ranks": 2}, "strategy", "emulated_ranks"),
        ({**SERVED, "staging": "local_copy"}, "strategy", "staging: local_copy"),
        ({**SERVED, "warmup_epochs": 1}, "strategy", "warmup_epochs"),
        ({**SERVED, "profile": True}, "strategy", "profile"),
        ({**SERVED, "checkpoint_epochs": 1}, "strategy", "checkpoint_epochs"),
        ({**SERVED, "input_pipeline": "keras_arrays"}, "strategy", "tf_data"),
    ],
)
def test_what_does_not_fit_a_strategy_is_refused(point, key, words):
    with pytest.raises(StudyError) as refused:
        expand(scaling="weak", **{"gpus": 1, **point})
    assert f".{key}: " in str(refused.value)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_that_is_too_large_to_send_is_refused_with_its_size(monkeypatch):
    """100 samples with 60 features are 24,000 bytes."""
    monkeypatch.setattr(strategy, "MOST_SENT", 24_000)
    assert expand(scaling="weak", gpus=1, **SERVED)
    monkeypatch.setattr(strategy, "MOST_SENT", 23_999)
    with pytest.raises(StudyError, match="sends each worker all training samples in one message"):
        expand(scaling="weak", gpus=1, **SERVED)
    assert expand(scaling="weak", gpus=1)


def test_the_worker_that_cannot_read_an_image_tells_which():
    """TensorFlow's message, which comes to the chief, has only the operation."""

    class Asked:
        def ask(self, question):
            assert question == shards.UNREADABLE
            return {1: None, 2: "shard-00000.tfrecord: record 134: is neither JPEG nor PNG", 3: None}

    found = shards._WorkerReader(Reader(images=None), "pyfunc_0", Asked()).failure()
    assert str(found) == "shard-00000.tfrecord: record 134: is neither JPEG nor PNG"
