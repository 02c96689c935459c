"""Wording of messages."""


def counted(number: object, noun: str) -> str:
    """A number with its noun: ``1 run``, ``2 runs``."""
    return f"{number} {noun}" + ("" if str(number) == "1" else "s")
