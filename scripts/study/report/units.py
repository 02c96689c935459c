"""Names of columns as the heads of tables show them."""

from study.core import units
from study.data.loaders import LOADERS

_SIDES = {"_low": ", low", "_high": ", high"}  # of an interval; they follow the unit
_HALF_WIDTH = "_ci95"


def make_heading(column: str) -> tuple[str, str]:
    """A column's name in words and its unit, for the head of a table: ``("train", "MB")`` for ``train_mb``."""
    side = next((end for end in _SIDES if column.endswith(end) and units.find_unit(column.removesuffix(end))), "")
    words, unit = units.split_unit(column.removesuffix(side).replace("_mb_per_step", "_per_step_mb"))
    half = " ± (95 %)" if words.endswith(_HALF_WIDTH) else ""
    return _to_words(words.removesuffix(_HALF_WIDTH)) + half + _SIDES.get(side, ""), unit or ""


def _to_words(name: str) -> str:
    """The name with spaces for underscores, except in the name of a loader."""
    for loader in (each for each in LOADERS if "_" in each):
        name = name.replace(loader, loader.replace("_", "\0"))
    return name.replace("_", " ").replace("\0", "_")
