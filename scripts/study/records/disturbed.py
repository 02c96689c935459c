"""Runs that were disturbed by other use of their hosts: how many of them a statement mentions."""

from study.core.wording import format_count

LEAST = 1 / 3  # of the runs or blocks behind a statement, from which on it says so


def sentence(disturbed: int, of: int, what: str) -> list[str]:
    """That many of the runs or blocks (``what``) behind a statement were disturbed; empty if few were."""
    if not disturbed or disturbed < LEAST * of:
        return []
    return [f"Other use of the hosts disturbed {disturbed} of {format_count(of, what)} (runs.csv, disturbed_by)."]
