"""The frameworks that train: one package each, and the only importers of their frameworks."""

import contextlib
import importlib
import importlib.util
from pathlib import Path
from typing import cast

from study.backends.base import Backend
from study.core.errors import StudyError
from study.data.images.codec import Codec
from study.machines.run_layout import HOROVOD

PACKAGES = {"tensorflow": ("tensorflow", "make setup"), "pytorch": ("torch", "make setup WITH=pytorch")}


def explain_missing(framework: str, strategy: str = "") -> str | None:
    """The reason why a framework, with a strategy, cannot train in this environment, and the remedy; None if it can."""
    package, remedy = PACKAGES[framework]
    if not _find_package_folders(package):
        return f"framework: {framework}: the package {package} is not installed in this environment; run {remedy}"
    if framework == "pytorch" and strategy == HOROVOD and not _horovod_has_pytorch():
        return f"framework: pytorch: Horovod was built without PyTorch in this environment; run {remedy}, or use ddp"
    return None


def _find_package_folders(package: str) -> list[str]:
    """The folders of an installed package; none if it is not installed."""
    with contextlib.suppress(ModuleNotFoundError):  # of an importer that knows no such package
        if spec := importlib.util.find_spec(package):
            return list(spec.submodule_search_locations or ())
    return []


def _horovod_has_pytorch() -> bool:
    """True if Horovod's compiled part for PyTorch is installed; importing it would take seconds."""
    return any(any(Path(each, "torch").glob("mpi_lib_v2*.so")) for each in _find_package_folders("horovod"))


def get_backend(name: str) -> Backend:
    """The backend of a framework, the value of the grid key ``framework``.

    Raises:
        StudyError: there is none.
    """
    try:
        return cast(Backend, importlib.import_module(f"study.backends.{name}.backend").BACKEND)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"study.backends.{name}"):
            raise
        raise StudyError(f"framework: {name}: there is no scripts/study/backends/{name}/backend.py") from None


def get_image_codec() -> Codec:
    """The codec of images for all frameworks: TensorFlow's, so that all get the same pixels."""
    return cast(Codec, importlib.import_module("study.backends.tensorflow.image_codec"))
