"""Wu et al., ICPP 2019: the CANDLE P1 benchmarks on Summit and Theta."""

from study.core.registry import import_submodules

import_submodules(__name__)
