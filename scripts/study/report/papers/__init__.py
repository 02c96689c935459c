"""Tables and claims of one paper each, one folder per paper."""

from study.core.registry import import_submodules

import_submodules(__name__)
