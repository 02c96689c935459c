"""Wu et al., PyHPC at SC18: NT3 on Theta."""

from study.core.registry import import_submodules

import_submodules(__name__)
