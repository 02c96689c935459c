"""Figures of the network: time per step by link rate, and bandwidth of allreduces by message size."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs, Kind
from study.report.tables.network import NEEDS, limits_links, sweeps


class Network(Kind):
    """What links of several rates cost."""

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs with link_mbit_per_s, and {NEEDS}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs of tables ``network`` and ``allreduce``."""
        return limits_links(run) or sweeps(run)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has runs of both tables."""
        return any(map(sweeps, study.runs)) and any(map(limits_links, study.runs))

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import network_drawing

        network_drawing.write(network_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("network", Network())
