"""The kinds of figures, one module each. None imports Matplotlib before it draws: every start of Snakemake is here."""

from study.core.registry import import_submodules
from study.report.figures.kinds.base import KINDS, Inputs

__all__ = ["KINDS", "Inputs"]

import_submodules(__name__)
