"""GoogLeNet (Szegedy et al., arXiv:1409.4842, Table 1): Inception V1 with its 5 x 5 filters.

With batch normalisation, and without the two auxiliary classifiers, as `study.workloads.inception_v1`.
"""

from study.workloads import inception_v1


class Workload(inception_v1.Workload):
    """GoogLeNet: 7,013,112 parameters at 1,000 classes, of which 14,560 are moving statistics."""

    third_branch = 5
    last_pooling = 3
