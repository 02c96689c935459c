"""What happens to runs on several hosts: hosts that are not ready, and ranks and launches that die."""

import glob
import os
import shutil
import signal
import subprocess
import time

from data_faults import NotHere
from place import ROOT, WAIT_S, signal_and_wait
from registry import fault
from run_faults import LONG, failed

from lab import laboratory

THREE = {"gpus": 3}
CHECK_S = 15  # until a host that is not ready is told


@fault("a rank on another host is killed", "hosts", quick=True)
def rank_on_a_host_killed(place):
    """A failed record of kind killed with rank and host; no process is left on any host; the next run is good."""
    with laboratory(place, 3) as place:
        launch = place.launch(**THREE, **LONG)
        place.wait_for_epoch(2)
        signal_and_wait(place, launch, place.ranks()[1], signal.SIGKILL)
        failure = failed(place, "killed", "train")
        assert (failure["rank"], failure["host"]) == (1, "h2"), failure
        assert place.run("next", **THREE)["status"] == "ok"


@fault("the launching process of a run on several hosts is killed", "hosts", quick=True)
def launch_on_hosts_killed(place):
    """No process is left on any host, and nothing looks whole."""
    _end_launch(place, signal.SIGKILL)


@fault("Ctrl-C in a run on several hosts", "hosts", quick=True)
def interrupted_on_hosts(place):
    """The ranks are ended on all hosts, and there is no record."""
    _end_launch(place, signal.SIGINT)


def _end_launch(place, number):
    """Send a signal to the launching process of a run on two hosts."""
    with laboratory(place, 2) as place:
        launch = place.launch(**LONG)
        place.wait_for_epoch(1)
        signal_and_wait(place, launch, launch, number)
        assert not place.has_outcome()
        place.nothing_is_left()
        assert not place.has_outcome()


def _unreachable(place):
    place.lab.on("h2", "ip", "link", "set", "br0", "down")


def _asks_for_a_password(place):
    place.lab.on("h2", "sh", "-c", "echo > ~root/.ssh/authorized_keys")


def _other_code(place):
    changed = place.folder / "changed.py"
    changed.write_text((ROOT / "scripts" / "train.py").read_text() + "# changed")
    place.lab.on("h2", "mount", "--bind", changed, ROOT / "scripts" / "train.py")


def _other_commit(place):
    shutil.copytree(ROOT / ".git", place.folder / "git", symlinks=True)
    git = ["git", f"--git-dir={place.folder / 'git'}", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "another"], check=True, cwd=ROOT)
    place.lab.on("h2", "mount", "--bind", place.folder / "git", ROOT / ".git")


def _no_environment(place):
    (place.folder / "empty").mkdir()
    place.lab.on("h2", "mount", "--bind", place.folder / "empty", ROOT / ".venv")


def _other_packages(place):
    packages = place.folder / "packages"
    packages.mkdir()
    (site,) = (ROOT / ".venv" / "lib").glob("python*/site-packages")
    for each in site.iterdir():
        (packages / each.name.replace("scipy-", "scipy-0")).symlink_to(each)
    place.lab.on("h2", "mount", "--bind", site, "/mnt")
    for link in packages.iterdir():  # the links would otherwise lead into the folder that covers them
        target = f"/mnt/{os.path.basename(os.readlink(link))}"
        link.unlink()
        link.symlink_to(target)
    place.lab.on("h2", "mount", "--bind", packages, site)


def _no_folder(place):
    place.lab.on("h2", "mount", "-t", "tmpfs", "tmpfs", ROOT / "scripts")


def _results_of_its_own(place):
    place.lab.on("h2", "mount", "-t", "tmpfs", "tmpfs", place.folder)


def _other_data(place):
    path = place.definition()["data"]["train"]["path"]
    changed = place.folder / "changed.npy"
    shutil.copy(path, changed)
    with open(changed, "r+b") as handle:
        handle.seek(-1, os.SEEK_END)
        handle.write(b"?")
    place.lab.on("h2", "mount", "--bind", changed, path)


def _unresolvable_name(place):
    place.lab.on("h2", "hostname", "nowhere")


def _same_name(place):
    place.lab.on("h2", "hostname", "h1")


def clock_off(by):
    """A function that sets the clocks of h2 off, for all that ssh starts there. by: as ``+1h``.

    The monotonic clock too: where libfaketime leaves it as it is, Python's ``sleep`` fails.
    """

    def set_off(place):
        found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        if not found:
            raise NotHere("libfaketime is not installed")
        place.lab.on("h2", "sh", "-c", "kill $(cat $LAB_DIR/h2/sshd.pid)")
        place.lab("sshd", "h2", "-o", f"SetEnv=LD_PRELOAD={found[0]} FAKETIME={by}")

    return set_off


# What is done to host h2, words of the one line that tells it, and changes of the machine.
NOT_READY = {
    "a host cannot be reached": (_unreachable, ["h2: ", "ssh h2"], {}),
    "a host asks for a password": (_asks_for_a_password, ["h2: ssh asks for a password", "ssh-copy-id h2"], {}),
    "a host has changed code": (_other_code, ["h2: files under scripts/ differ", "git status"], {}),
    "a host has another commit": (_other_commit, ["h2: its commit is", "same commit"], {}),
    "a host has no environment": (_no_environment, ["h2: has no ", "make setup"], {}),
    "a host has other packages": (_other_packages, ["h2: its Python packages differ", "scipy-0", "make setup"], {}),
    "a host does not see the project": (_no_folder, ["h2: does not see", "share"], {}),
    "a host has results of its own": (_results_of_its_own, ["h2: does not see the results", "share"], {}),
    "a host has other data": (_other_data, ["h2: ", "train.npy is not the same", "copy"], {}),
    "a host's own name does not resolve": (_unresolvable_name, ["h2: its own name, nowhere,", "/etc/hosts"], {}),
    "two hosts have one name": (_same_name, ["h2: calls itself h1", "rename"], {}),
    "a host's clock is an hour off": (clock_off("+1h"), ["h2: its clock is +3600 s off", "timedatectl"], {}),
    "a host lacks the interface": (
        lambda place: None, ["h2: has no interface eth9", "br0 (10.77.0.3)"], {"interface": {"h1": "br0", "h2": "eth9"}}
    ),
}  # fmt: skip


def _register(name, spoil, words, machine):
    @fault(name, "hosts", quick=True)
    def not_ready(place):
        with laboratory(place, 2) as place:
            spoil(place)
            place.injected()
            began = time.monotonic()
            launch = place.launch(machine=machine)
            _, errors = launch.communicate(timeout=WAIT_S)
            place.detected()
            said = [line for line in errors.splitlines() if line.startswith("error: ")]
            assert (launch.returncode, len(said)) == (1, 1), errors
            assert not [word for word in words if word not in said[0]], said[0]
            assert "Traceback" not in errors and not place.has_outcome()
            assert time.monotonic() - began < CHECK_S

    not_ready.__doc__ = f"One line of error within {CHECK_S} s that names the host and the remedy; no rank starts."


for _name, (_spoil, _words, _machine) in NOT_READY.items():
    _register(_name, _spoil, _words, _machine)
