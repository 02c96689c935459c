"""The network laboratory (scripts/lab.sh) in tests: hosts are namespaces of this machine, as real as these are."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import control_groups
import psutil
from data_faults import NotHere
from place import ROOT, WAIT_S, Place

from study.machines import machine

PROGRAMS = ("ip", "tc", "nsenter", "unshare", "sshd", "ssh")
# What a container may forbid even to root.
NEEDED = (
    "export PATH=$PATH:/usr/sbin:/sbin; hostname there && mount -t tmpfs tmpfs /mnt && ip link add br0 type bridge "
    "&& ip link add v1 type veth peer name v2 && tc qdisc add dev v1 root tbf rate 1mbit burst 64kb latency 50ms"
)
SSHD = {"sshd", "sshd-session"}
# Where a cgroup that freezes its processes can be made, its file, and the words for it.
FREEZERS = (
    (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
)


class Lab:
    """Some hosts, started and ended here; raises `NotHere` with the reason where that is not possible."""

    def __init__(self, hosts, folder):
        missing = [each for each in PROGRAMS if not shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
        if os.geteuid() != 0 or missing:
            raise NotHere(f"the laboratory needs {'root' if os.geteuid() else ' and '.join(missing)}")
        tried = subprocess.run(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", NEEDED], capture_output=True, text=True
        )
        if tried.returncode != 0:
            raise NotHere(f"network namespaces cannot be made here: {tried.stderr.strip()}")
        self.hosts, self.folder = hosts, Path(folder)
        self._variables = {**os.environ, "LAB_DIR": str(self.folder)}

    def __enter__(self):
        self("up", self.hosts)
        return self

    def __exit__(self, *_):
        self("down")
        assert not self.folder.exists()

    def __call__(self, *arguments, check=True):
        done = subprocess.run(
            [ROOT / "scripts" / "lab.sh", *map(str, arguments)],
            env=self._variables, capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def on(self, host, *command):
        return self("on", host, *command)

    def processes(self, host):
        """All processes on a host, besides the one that keeps its namespaces."""
        keeper, space = (self.folder / host / "pid").read_text().split()
        found = []
        for process in psutil.process_iter(["name", "cmdline", "status"]):
            with contextlib.suppress(OSError, psutil.Error):
                if os.readlink(f"/proc/{process.pid}/ns/net") == space and process.pid != int(keeper):
                    found.append(process)
        return found

    def signal(self, host, number, names=None):
        """Send a signal to all processes on a host, or to those with such a name."""
        for process in self.processes(host):
            if names is None or process.info["name"] in names:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def left(self):
        """Processes on the hosts, besides those that keep them: {host: command lines}."""
        found = {}
        for host in (f"h{number}" for number in range(1, self.hosts + 1)):
            for process in self.processes(host):
                if process.info["name"] not in SSHD and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.setdefault(host, []).append(" ".join(process.info["cmdline"]))
        return found


class Freezer:
    """A cgroup that stops processes as a machine that freezes does; raises `NotHere` where none can be made."""

    def __init__(self, name):
        for root, file, self._stop, self._go_on in FREEZERS:
            if folder := control_groups.made(root, name, [file]):
                self._folder, self._state = folder, folder / file
                return
        raise NotHere("no cgroup that freezes processes can be made here")

    def __enter__(self):
        return self

    def freeze(self, processes):
        for process in processes:
            control_groups.enter(self._folder, process.pid)
        self._state.write_text(self._stop)

    def thaw(self):
        self._state.write_text(self._go_on)

    def __exit__(self, *_):
        self.thaw()
        control_groups.dissolve(self._folder)


class LabPlace(Place):
    """A place whose runs have their ranks on the laboratory's hosts, one each."""

    def __init__(self, folder, data, lab):
        super().__init__(folder, data)
        self.lab = lab
        self.prefix = [ROOT / "scripts" / "lab.sh", "exec"]
        self.variables = {"LAB_DIR": str(lab.folder)}

    def machine(self):
        return machine.load("lab")

    def nothing_is_left(self, name="run"):
        super().nothing_is_left(name)
        self.wait_until(lambda: self.lab.left() == {}, f"processes on hosts to end: {self.lab.left()}")


@contextlib.contextmanager
def laboratory(place, hosts):
    """A `LabPlace` in a fault's place, on so many hosts of its own."""
    with Lab(hosts, place.folder.parent / f"{place.folder.name}.lab") as lab:
        inside = LabPlace(place.folder, place.data, lab)
        inside.point = place.point
        yield inside
        assert lab.left() == {}, lab.left()
    place.seconds = inside.seconds
