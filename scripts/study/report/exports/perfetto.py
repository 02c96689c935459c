"""A run as one trace for Perfetto, made by `study.report.trace`."""

from pathlib import Path

from study.core.wording import counted
from study.report import trace
from study.report.exports import kinds


@kinds.of_run("perfetto", title="each run on one time axis, for Perfetto and chrome://tracing", file="trace.json.gz")
def export(folder: Path, path: Path) -> kinds.Written:
    """Write the trace of a run; compressed if ``path`` ends with ``.gz``."""
    made = trace.write(folder, path)
    return kinds.Written(f"{counted(made.events, 'event')}, {path.stat().st_size / 1e6:.1f} MB", made.absent)
