"""A real Slurm with virtual nodes on this machine, in a folder of its own; nothing outside the folder is touched.

Commands find it by SLURM_CONF, `VirtualSlurm.configuration`. Needs root and Debian's slurm-wlm and munge.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
START_S = 300  # for all nodes to be idle
# A job is requeued after its credential has expired, two minutes by default. Both partitions have all nodes; jobs
# of the usual one are spread over them (LLN).
CONFIGURATION = """
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={credential_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdTimeout={silence_s}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmix
TmpFS={folder}/spool/%n
ReturnToService=2
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=8 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 LLN=YES
PartitionName=urgent Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10
"""
# The machine's file. It does not name `VirtualSlurm.configuration`: SLURM_CONF must reach the jobs by itself.
MACHINE = """
description: four virtual nodes of a real Slurm
scheduler: slurm
launcher: srun
nodes: 4
ranks_per_node: 1
cores_per_rank: 1
gpus_per_rank: 0
power_sensors: [nvml, rapl]
time_limit_s: 300
"""


def missing():
    """The programs that are not installed."""
    return [program for program in NEEDED if shutil.which(program, path=PATH) is None]


class VirtualSlurm:
    """One Slurm. folder: its own, with a short path, since munge's socket is in it.

    silence_s: after which a node without its slurmd is down. credential_s: after which a requeued job starts.
    """

    def __init__(self, folder, nodes=4, silence_s=300, credential_s=120):
        self.folder, self.configuration = Path(folder), Path(folder) / "slurm.conf"
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.variables = {**os.environ, "SLURM_CONF": str(self.configuration), "PATH": PATH}
        self.silence_s, self.credential_s = silence_s, credential_s

    def start(self):
        """Start all daemons and wait for the nodes; raises `RuntimeError` with the logs' place if one does not come."""
        self._configure()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self._started(
            "munged", "--force", "--key-file", key, "--socket", self.folder / "munge.socket", "--pid-file",
            self.folder / "munge.pid", "--seed-file", self.folder / "munge.seed", "--log-file",
            self.folder / "log" / "munge.log",
        )  # fmt: skip
        for daemon in ("slurmctld", *self.nodes):
            self.start_daemon(daemon)
        deadline = time.monotonic() + START_S
        while self.node_states() != dict.fromkeys(self.nodes, "idle"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all nodes are idle after {START_S} s; see {self.folder}/log")
            time.sleep(0.5)

    def start_daemon(self, name):
        """Start ``slurmctld``, or the slurmd of a node."""
        self._started(*(["slurmctld"] if name == "slurmctld" else ["slurmd", "-N", name]))

    def signal_daemon(self, name, number=signal.SIGKILL):
        """Send a daemon a signal; whether it was there."""
        file = self.folder / {"slurmctld": "slurmctld.pid", "munge": "munge.pid"}.get(name, f"slurmd-{name}.pid")
        try:
            daemon = psutil.Process(int(file.read_text()))
            if daemon.environ().get("SLURM_CONF") != str(self.configuration):
                return False  # a killed daemon's number, which another process has now
            daemon.send_signal(number)
        except (OSError, ValueError, psutil.Error):
            return False
        return True

    def ask(self, *line):
        """The output of one of Slurm's commands; None if it failed."""
        done = subprocess.run(line, env=self.variables, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def node_states(self):
        """{node: state}, the state without marks; empty if slurmctld does not answer."""
        answer = self.ask("sinfo", "--noheader", "--Node", "--partition", "all", "--format", "%N %t") or ""
        return {node: state.rstrip("*~#!%$@^-+") for node, state in map(str.split, answer.splitlines())}

    def jobs(self):
        """[(id, state)] of all jobs that are not over."""
        answer = self.ask("squeue", "--noheader", "--format", "%A %T") or ""
        return [tuple(line.split()) for line in answer.splitlines()]

    def stop(self):
        """Cancel all jobs and end all daemons, also those that an earlier process started in this folder."""
        if not self.configuration.exists():
            return
        for job, _ in self.jobs():
            self.ask("scancel", job)
        deadline = time.monotonic() + 30
        while self.jobs() and time.monotonic() < deadline:
            time.sleep(0.5)
        for daemon in (*self.nodes, "slurmctld", "munge"):
            self.signal_daemon(daemon, signal.SIGTERM)

    def _configure(self):
        for name in ("state", "log", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        nodes, port = (
            len(self.nodes),
            random.SystemRandom().randrange(20_000, 30_000),
        )  # two of them can be on one machine
        self.configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname().split(".")[0], folder=self.folder, nodes=nodes, port=port, first=port + 1,
                last=port + nodes, silence_s=self.silence_s,
                credential_s=self.credential_s,
            )
        )  # fmt: skip

    def _started(self, *line):
        done = subprocess.run(line, env=self.variables, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{line[0]} did not start: {done.stdout}{done.stderr}")
