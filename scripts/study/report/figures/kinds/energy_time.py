"""Figures of energy against time."""

from study.core.files import AnyPath
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs
from study.report.figures.kinds.points import Points


class EnergyTime(Points):
    """Each point's energy against its time, with the Pareto front; of the same runs as `Points`."""

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import energy_time_drawing

        energy_time_drawing.write(energy_time_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("energy_time", EnergyTime())
