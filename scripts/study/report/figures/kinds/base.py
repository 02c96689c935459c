"""The registry of kinds of figures: what each draws, and what a study needs to have for it."""

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core.files import AnyPath
from study.core.registry import Registry
from study.experiment.study import Study
from study.report.figures.description import Description


@dataclass(frozen=True)
class Inputs:
    """The input of a figure.

    Args:
        runs: the tidy table of the runs that the figure uses.
        loading: the tidy table of loads.
        study: the study's name.
        folder: the machine's results folder, to which the column ``record`` is relative.
    """

    runs: pd.DataFrame
    loading: pd.DataFrame
    study: str
    folder: Path


class Kind(ABC):
    """A kind of figure."""

    drawing: str  # the module in `study.report.figures` that draws it, imported for that only: it loads Matplotlib
    uses_loading = False  # whether it is made from the loading measurements
    reads_further = False  # whether it also shows the study's ``further_results``, runs of other machines

    @abstractmethod
    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""

    @abstractmethod
    def uses(self, description: Description, run: Any) -> bool:
        """Whether the figure is made from this run, planned or a row of ``runs.csv``; it gets no others."""

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has what the figure needs: by default, a run that it uses."""
        return any(self.uses(description, run) for run in study.runs)

    def data(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """What is drawn: by default what the ``module`` that draws it selects of the runs."""
        return module.select(description, inputs.runs, inputs.study)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files, whole or not at all."""
        from study.report.figures.drawing import write

        module = importlib.import_module(f"study.report.figures.{self.drawing}")
        write(module.draw, self.data(module, description, inputs), svg, pdf)


KINDS: Registry[Kind] = Registry("kind of figure")
