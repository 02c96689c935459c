"""Emulated ranks on the GPU, for strong scaling's accuracy at the paper's size: listed, not built."""

from study.launch.gpu_check.context import Context


def check(context: Context) -> None:
    """One row, so that nobody takes it for checked."""
    context.rows.not_possible("accuracy at the paper's size by emulated ranks", "not built: this check has no such run")
