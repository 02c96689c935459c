"""What a command takes: time, CPU time, peak memory, and what it printed."""

import os
import subprocess
import sys
import tempfile
import time


def measured(line, folder, variables):
    """{"seconds", "cpu_s", "peak_mb", "text"} of a script of Python, its arguments, with its child processes."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *map(str, line)], cwd=folder, env=variables, stdout=told, stderr=told
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        text = told.read()
    if process.returncode:
        raise SystemExit(f"error: {' '.join(map(str, line))}: {text[-1000:]}")
    return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1000, "text": text}
