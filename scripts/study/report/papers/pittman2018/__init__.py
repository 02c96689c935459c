"""Pittman et al., SC18: ensembles of networks that share one input pipeline, on Titan."""

from study.core.registry import import_submodules

import_submodules(__name__)
