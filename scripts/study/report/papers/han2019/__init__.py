"""Han et al., IEEE CLUSTER 2019: convolutional networks on Summitdev."""

from study.core.registry import import_submodules

import_submodules(__name__)
