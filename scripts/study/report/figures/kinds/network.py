"""Figures of the network: time per step by link rate, and bandwidth of allreduces by message size."""

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs
from study.report.tables.network import NEEDS, sweeps


class Network:
    """What links of several rates cost."""

    reads_timelines = False

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs with link_mbit_per_s, and {NEEDS}"

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has it."""
        return sweeps(study) and any(run["link_mbit_per_s"] and not run["allreduce_sweep"] for run in study.runs)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import network_drawing

        network_drawing.write(network_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("network", Network())
