"""Values of keys as written in a cell: ``gpus=32;storage=nvme``."""

from typing import Any


def values(text: str | None) -> dict[str, Any]:
    """``gpus=32;storage=nvme`` as a dict; whole numbers are numbers."""
    parts = [part.split("=") for part in (text or "").split(";") if part]
    return {name: int(value) if value.isdigit() else value for name, value in parts}
