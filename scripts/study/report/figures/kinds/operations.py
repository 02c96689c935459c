"""Figures of what a training step's time goes into."""

from typing import Any

from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Kind
from study.report.tables.operations import NEEDS, USES


class Operations(Kind):
    """A step's time by what it did, a bar for each point; of the runs of the table ``operations``."""

    drawing = "operations_drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return NEEDS

    def uses(self, description: Description, run: Any) -> bool:
        """The runs whose operations were profiled."""
        return USES(run)


KINDS.add("operations", Operations())
