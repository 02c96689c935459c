"""Batch systems: one module each, registered where it is defined."""

from study.core.registry import import_submodules
from study.machines.batch_systems.base import BATCH_SYSTEMS

__all__ = ["BATCH_SYSTEMS"]

import_submodules(__name__)
