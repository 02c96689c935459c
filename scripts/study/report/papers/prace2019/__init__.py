"""The PRACE best practice guide on deep learning (2019): scaling, input and loops of ResNet-50."""

from study.core.registry import import_submodules

import_submodules(__name__)
