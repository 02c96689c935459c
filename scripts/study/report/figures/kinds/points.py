"""Figures of points against the number of GPUs."""

from typing import Any

from study.core.files import AnyPath
from study.report.figures.description import POINTS, Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs, Kind


class Points(Kind):
    """Quantities of the runs that give timings, one line per series."""

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs that give timings and pass the description's filters."""
        return draws(description, run)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import drawing, selection

        drawing.write(selection.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add(POINTS, Points())
