"""What runs with PyTorch do not have: a plan that asks for it is refused, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study.data.images.augmentation import OF_WHOLE_IMAGES
from study.data.images.formats import FORMATS
from study.experiment.parameters.registry import refuse_combination
from study.machines.run_layout import DDP, HOROVOD

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

OF_TENSORFLOW, OF_HOROVOD = "it is TensorFlow's", "it is Horovod's"
ENSEMBLES = "ensembles are trained with TensorFlow"
# Keys that must have their defaults, and why.
LACKS = {
    "ensemble": ENSEMBLES,
    "members": ENSEMBLES,
    "measure": ENSEMBLES,
    "compute": ENSEMBLES,
    "input_pipeline": "Keras is handed the arrays",
    "training_loop": "it chooses between Keras's loop and this project's, which PyTorch always has",
    "xla": OF_TENSORFLOW,
}
# The same with strategy: ddp.
DDP_LACKS = {
    "trace": "the timeline is Horovod's; PyTorch's own profiler shows the allreduces of DDP",
    "fusion_threshold_mb": OF_HOROVOD,
    "cycle_time_ms": OF_HOROVOD,
    "cache_capacity": OF_HOROVOD,
}


def list_inapplicable_keys(strategy: str) -> set[str]:
    """The keys that have no effect in runs with PyTorch and a strategy."""
    return {*LACKS, *(DDP_LACKS if strategy == DDP else ())}


def refuse_pytorch(run: PlannedRun) -> str | None:
    """The reason why a run cannot be trained with PyTorch as planned; None if it can."""
    if run["strategy"] not in (DDP, HOROVOD):
        return f"pytorch cannot be combined with strategy: {run['strategy']}; use ddp or horovod"
    if why := refuse_combination(run, "pytorch", LACKS) or refuse_combination(
        run, DDP, DDP_LACKS if run["strategy"] == DDP else {}
    ):
        return why
    if run["precision"] == "mixed_float16":
        return "pytorch cannot be combined with precision: mixed_float16; use mixed_bfloat16"
    if run.kind == "images" and not FORMATS[run["loader"]].has_pixels:
        return f"pytorch cannot be combined with loader: {run['loader']}, whose images TensorFlow decodes; use memory"
    if run["augmentation"] in OF_WHOLE_IMAGES:
        return f"pytorch cannot be combined with augmentation: {run['augmentation']}, which is TensorFlow's; use light"
    return None
