"""Figures of energy against time."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs


class EnergyTime:
    """Each point's energy against its time, with the Pareto front."""

    reads_timelines = False
    uses_loading = False
    reads_further = False

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
        from study.report.figures import energy_time_drawing

        energy_time_drawing.write(energy_time_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("energy_time", EnergyTime())
