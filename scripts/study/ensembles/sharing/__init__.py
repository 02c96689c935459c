"""The ways in which the ranks of an ensemble share preprocessed blocks; each is registered where it is defined.

All give every member the same blocks in the same order.
"""

from study.core.registry import import_submodules
from study.ensembles.sharing.base import WAYS, Place, Way

import_submodules(__name__)

__all__ = ["WAYS", "Place", "Way"]
