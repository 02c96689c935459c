"""How Snakemake reports a mistake of the user."""

import contextlib
from collections.abc import Iterator

from snakemake.exceptions import WorkflowError

from study.core.errors import StudyError


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Raise a `StudyError` of the block as Snakemake's `WorkflowError`, which it prints without a traceback."""
    try:
        yield
    except StudyError as error:
        raise WorkflowError("\n".join(error.lines)) from None
