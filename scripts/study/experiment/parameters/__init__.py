"""Every grid key, declared once. One module per subject; the order of the imports is the order in a run's name.

A new key with a default needs a declaration here and the code that implements it. Everything else is derived from here:
the study's schema, the run's identity, the record's schema, the columns that keep different runs apart, the comparison
with published workloads, and the reference in docs/reference/grid-keys.md. Finished runs stay valid when a key is
added; a default never changes, nor does the order of the keys that are there.
"""

# isort: off
from study.experiment.parameters import (  # noqa: F401
    workload, learning, input, network, observation, strategy, horovod, tensorflow, placement, ensemble, repeats,
    compilation,
)  # fmt: skip

# isort: on
from study.experiment.parameters.registry import PARAMETERS, is_observed, list_observing_keys

__all__ = ["PARAMETERS", "is_observed", "list_observing_keys"]
