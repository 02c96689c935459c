"""Signs of life of a run's ranks, so that one that hangs is found long before its time limit.

Each rank touches a file of its own, twice a minute at most, when something has gone on: in training a step, elsewhere
a new phase, or processor time or bytes read while it loads, prepares or evaluates. Waiting for other
ranks is no sign, nor what Horovod's threads do meanwhile: what the others do is theirs to tell. The process that
launched the ranks looks how old the latest sign is.
"""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

LIMIT_S = 900  # without a sign, where the machine's file gives no other
LONGEST_INTERVAL_S = 30.0
LIMIT_VARIABLE = "STUDY_STALL_LIMIT_S"
BUSY_PHASES = {"startup", "load", "stage", "preprocess", "evaluate", "checkpoint"}
OWN_READING = 4096  # bytes, at most, that a look at all this reads itself
BUSY_SHARE = 0.1  # of a core, from which a rank in one of these phases is at work


class Signs:
    """The signs of life of one rank, from here on to the end of its process."""

    def __init__(self, folder, limit_s):
        """folder: of the run's ranks. limit_s: how long all of them may be silent."""
        self._path = Path(folder) / f"alive-{socket.gethostname()}-{os.getpid()}"
        self._interval = min(LONGEST_INTERVAL_S, limit_s / 6)
        self.phases = None  # the rank's `study.instruments.phases.PhaseLog`, once it knows its rank
        self.steps = None  # gives the number of training steps made, in training
        self.ignored = frozenset()  # threads of this process whose work is no sign: Horovod's, at work while it waits
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        before = None
        while True:
            present = self._present()
            if before is None or self._has_gone_on(before, present):
                with contextlib.suppress(OSError):  # a full disk is told by those who need it
                    self._path.touch()
            before = present
            time.sleep(self._interval)

    def _present(self):
        phase = self.phases.current if self.phases else "startup"
        steps = self.steps() if phase == "train" and self.steps else None
        return phase, steps, time.monotonic(), time.process_time() - _cpu_s(self.ignored), _bytes_read()

    @staticmethod
    def _has_gone_on(before, present):
        if before[:2] != present[:2]:
            return True
        has_read = present[4] - before[4] > OWN_READING
        is_busy = present[3] - before[3] > BUSY_SHARE * (present[2] - before[2])
        return present[0] in BUSY_PHASES and (is_busy or has_read)


def _cpu_s(threads):
    """Processor time of some threads of this process, seconds."""
    total = 0
    for thread in threads:
        with contextlib.suppress(OSError):  # one that has ended
            fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # utime, stime: fields 14 and 15, of which two are cut off
    return total / os.sysconf("SC_CLK_TCK")


def _bytes_read():
    """Bytes that this process has read, from files and pages of files; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/io", "rb") as handle:
            return int(handle.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def watched(folder):
    """The `Signs` of this process, a rank, in a run's folder of ranks; None where nobody watches the run."""
    limit = os.environ.get(LIMIT_VARIABLE)
    return Signs(folder, float(limit)) if limit else None


def last_sign(folder):
    """When (seconds since 1970) a rank gave the latest sign of life in a run's folder of ranks."""
    files = [folder, *folder.glob("alive-*"), *folder.glob("phases-*")]
    times = []
    for file in files:
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times, default=0.0)
