"""What sharing the input of an ensemble should gain: two small models, of rates and of CPU time.

Rates (Pittman et al., section IV-A), all in samples/s of one rank or member:

- r_p: a rank preprocesses by itself; r_c: a member computes on samples that are ready
- peak: samples that reach each rank if nobody trains
- duplicated pipelines train at min(r_p, r_c), shared ones at min(r_c, peak)

The model takes preprocessing and computing for work of different devices, as CPU and GPU. Where both use the same cores
it does not hold, and the model of CPU time is the one to look at:

- c_p: CPU time to preprocess a sample once; c_c: what sharing adds to the communication of all ranks; rest: all else
- k: how often all ranks together preprocess a sample: with duplicated pipelines of n members n times; with shared ones
  once, or more where each node preprocesses for itself
- duplicated pipelines take rest + k c_p per sample, shared ones rest + k c_p + c_c, each with its own k
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rates:
    """Rates in samples/s; NaN where not measured.

    Args:
        preprocessing: r_p.
        compute: r_c.
        peak: of the way of sharing.
    """

    preprocessing: float
    compute: float
    peak: float

    @property
    def duplicated(self) -> float:
        """What a member trains with duplicated pipelines."""
        return float(np.minimum(self.preprocessing, self.compute))  # NaN if either is, which `min` would not tell

    @property
    def shared(self) -> float:
        """What a member trains with a shared pipeline."""
        return float(np.minimum(self.compute, self.peak))

    @property
    def gain(self) -> float:
        """How many times as fast a shared pipeline trains."""
        return self.shared / self.duplicated


@dataclass(frozen=True)
class Costs:
    """CPU time per sample of the data, in one unit; NaN where not measured.

    Args:
        preprocessing: c_p.
        communication: c_c.
        rest: of all members together.
    """

    preprocessing: float
    communication: float
    rest: float

    def gain(self, duplicated: float, shared: float) -> float:
        """How many times the CPU time of a shared pipeline duplicated ones take; NaN if a shared one takes none.

        Args:
            duplicated: how often duplicated pipelines preprocess a sample.
            shared: how often a shared one does.
        """
        cost = self.rest + shared * self.preprocessing + self.communication
        return (self.rest + duplicated * self.preprocessing) / cost if cost > 0 else math.nan
