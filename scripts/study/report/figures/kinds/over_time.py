"""Figures of a quantity over time, of the runs that give timings (sc18, Figures 3, 4, 5, 7; pittman2018, 2 and 3)."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs


class OverTime:
    """A quantity and phases of runs over time; several machines' runs stand on one time axis."""

    uses_loading = False
    reads_further = True

    def __init__(self, quantity: str) -> None:
        """quantity: one of `study.report.figures.timeline.QUANTITIES`."""
        self._quantity = quantity

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs that give timings and pass the description's filters."""
        return draws(description, run)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has it."""
        return any(self.uses(description, run) for run in study.runs)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import timeline, timeline_drawing

        data = timeline.select(
            description, inputs.runs, inputs.study, inputs.folder, traced=False, quantity=self._quantity
        )
        timeline_drawing.write(data, svg, pdf)


for each in ("power", "queue_fill", "cores_used"):
    KINDS.add(each, OverTime(each))
