"""Figures of points against the number of GPUs."""

from typing import Any

from study.report.figures.description import POINTS, Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs, Kind


class Points(Kind):
    """Quantities of the runs that give timings, one line per series."""

    drawing = "drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs that give timings and pass the description's filters."""
        return draws(description, run)

    def data(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Of the runs."""
        from study.report.figures.selection import select

        return select(description, inputs.runs, inputs.study)


KINDS.add(POINTS, Points())
