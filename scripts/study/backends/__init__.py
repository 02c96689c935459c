"""The frameworks that train: one package each, and the only importers of their frameworks."""

import contextlib
import importlib
import importlib.util
from typing import Any, cast

from study.backends.base import Backend
from study.core.errors import StudyError
from study.data.images.codec import Codec
from study.experiment.definition import RunDefinition

PACKAGES = {"tensorflow": ("tensorflow", "make setup"), "pytorch": ("torch", "make setup WITH=pytorch")}


def missing(framework: str) -> str | None:
    """Why runs of a framework cannot train in this environment, with the remedy; None if they can."""
    package, remedy = PACKAGES[framework]
    with contextlib.suppress(ModuleNotFoundError):  # of an importer that knows no such package
        if importlib.util.find_spec(package):
            return None
    return f"framework: {framework}: the package {package} is not installed in this environment; run {remedy}"


def of_run(run: RunDefinition) -> Backend:
    """The backend of a run's definition."""
    return get(run.framework)


def get(name: str) -> Backend:
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


def image_codec() -> Codec:
    """What makes and converts images for all frameworks: TensorFlow's codecs, so that all get the same pixels."""
    return cast(Codec, importlib.import_module("study.backends.tensorflow.image_codec"))


def model_check(name: str) -> Any:
    """The module of a framework with the function ``refusal``, which tries a model before any run."""
    return importlib.import_module(f"study.backends.{name}.model_check")
