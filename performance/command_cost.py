"""The cost of a command: time, CPU time, peak memory, and its output."""

import os
import subprocess
import sys
import tempfile
import time


def measure_command(line, folder, variables):
    """Run a Python script with its arguments; returns {"seconds", "cpu_s", "peak_mb", "text"}, with child processes."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *map(str, line)], cwd=folder, env=variables, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"error: {' '.join(map(str, line))}: {text[-1000:]}")
    return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1000, "text": text}
