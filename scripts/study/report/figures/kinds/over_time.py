"""Figures of runs over time: traced ones, and a quantity of those that give timings.

Of sc18, Figures 3, 4, 5 and 7; of icpp2019, the timelines; of pittman2018, Figures 2 and 3.
"""

from typing import Any

from study.report.figures.description import Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs, Kind


class OverTime(Kind):
    """A quantity and phases of runs over time; several machines' runs that give timings stand on one time axis."""

    drawing = "timeline_drawing"

    def __init__(self, quantity: str, traced: bool = False) -> None:
        """quantity: one of `study.report.figures.timeline.QUANTITIES`. traced: of traced runs, with communication."""
        self._quantity, self._traced = quantity, traced
        self.reads_further = not traced

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"{'traced ' * self._traced}runs{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs that are traced, or that give timings, and pass the description's filters."""
        return draws(description, run, traced=self._traced)

    def data(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Of the runs and the files in their directories."""
        from study.report.figures.timeline import select

        return select(description, inputs.runs, inputs.study, inputs.folder, self._traced, self._quantity)


KINDS.add("timeline", OverTime("power", traced=True))
for each in ("power", "queue_fill", "cores_used"):
    KINDS.add(each, OverTime(each))
