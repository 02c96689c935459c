"""Keys of how the samples reach the model: loader, staging, storage, pipeline, sharding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.core.wording import format_count
from study.data.images.augmentation import LIGHT, NONE, OF_WHOLE_IMAGES
from study.data.images.formats import FORMATS
from study.data.loaders import LOADERS
from study.data.samples import Can
from study.experiment.parameter import Choice, Count, Flag, FromBenchmark, Name, Refusal
from study.experiment.parameters.registry import declare, is_at_default
from study.workloads import command

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

IMAGE_LOADERS = tuple(FORMATS)
COLOURS = 3  # channels
NO_LOADER = "none"  # of a command, which loads its own data


def _refuse_loader(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``loader``, or None."""
    is_image_loader, name = run["loader"] in IMAGE_LOADERS, run.dataset.benchmark
    if (run["loader"] == NO_LOADER) != (run.kind == command.KIND):
        reason = f"{name} loads its own data; leave it out"
        return reason if run.kind == command.KIND else f"{run['loader']}: is for commands, {name} is none"
    if run.kind == command.KIND:
        return None
    if is_image_loader != (run.kind == "images"):
        fitting = IMAGE_LOADERS if run.kind == "images" else LOADERS
        return f"{run['loader']}: {name} trains on {run.kind}; use {_join_with_or(list(fitting))}"
    too_wide = run.dataset.explain_too_wide(run["loader"])
    return f"{run['loader']}: {too_wide}" if too_wide else None


def _refuse_loader_on(run: PlannedRun, machine: Mapping[str, Any]) -> str | None:
    """The reason why a machine cannot have a run's ``loader``, or None: the pixels of its ranks exceed the memory."""
    shape, memory_gb = run.dataset.shape, machine.get("node_memory_gb")
    if memory_gb is None or shape is None or run.kind != "images" or not FORMATS[run["loader"]].has_pixels:
        return None
    model, ranks = run.spec["model"], min(run.gpus, machine["ranks_per_node"])
    images = shape["train_samples"] + shape["test_samples"]
    rank_gb = images * model["resize"] ** 2 * model["channels"] / 1e9
    if ranks * rank_gb <= memory_gb:
        return None
    return (
        f"{run['loader']}: {format_count(ranks, 'rank')} of a node, each with {rank_gb:.0f} GB of pixels, need more "
        f"than its {memory_gb:g} GB (node_memory_gb); use {_join_with_or(_list_encoded_loaders())}"
    )


def _refuse_storage(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``storage``, or None."""
    if run["storage"] != "none" and run.dataset.definition["source"] == "path":
        return (
            f"dataset '{run.dataset.key}' is your own files, which are read from where they are; use none, or staging: "
            "local_copy"
        )
    return None


def _refuse_input_pipeline(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``input_pipeline``, or None."""
    if run["input_pipeline"] == "keras_arrays" and run.kind == "images":
        return "images are decoded one batch at a time, so there is no array to hand to Keras; use tf_data"
    if run["input_pipeline"] == "keras_arrays" and Can.IN_MEMORY not in run.source_can:
        return (
            f"{run.dataset.benchmark}'s samples are joined one batch at a time, so there is no array to hand to Keras; "
            "use tf_data"
        )
    return None


def _build_tf_data_refusal(name: str) -> Refusal:
    """A function that refuses another value than the default of a key of tf.data's pipeline."""

    def refuse(run: PlannedRun) -> str | None:
        """The reason why a run cannot have its value of the key, or None."""
        if run["emulated_ranks"] > 1 and name != "shuffle_buffer_samples" and not is_at_default(run, name):
            return "an emulated rank's batches are made within its step; use emulated_ranks: 1"
        if run["input_pipeline"] == "keras_arrays" and not is_at_default(run, name):
            return "Keras makes the batches with input_pipeline: keras_arrays; use tf_data"
        return None

    return refuse


def _refuse_cache_samples(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``cache_samples``, or None."""
    if not run["cache_samples"]:
        return None
    if run["emulated_ranks"] > 1:
        return "an emulated rank's batches are made within its step; use emulated_ranks: 1"
    if run.kind != "images":
        return f"{run.dataset.benchmark}'s tables are in memory before training begins; use false"
    if FORMATS[run["loader"]].has_pixels:
        return f"loader: {run['loader']} has all images decoded before training begins; use false"
    return None


def _refuse_shuffle_buffer(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``shuffle_buffer_samples``, or None."""
    if run["shuffle_buffer_samples"] and not run.spec["shuffle"]:
        return f"{run.dataset.benchmark}'s samples are not shuffled; use 0"
    return _build_tf_data_refusal("shuffle_buffer_samples")(run)


def _refuse_augmentation(run: PlannedRun) -> str | None:
    """The reason why a run cannot have its ``augmentation``, or None."""
    if is_at_default(run, "augmentation"):
        return None
    if run.kind != "images":
        return f"{run.dataset.benchmark} trains on {run.kind}, which have none; leave it out"
    if run["augmentation"] not in OF_WHOLE_IMAGES:
        return None
    if not run.spec["shuffle"]:
        return f"{run.dataset.benchmark}'s samples are not shuffled, so no epoch is known from which changes follow"
    if FORMATS[run["loader"]].has_pixels:
        usable = _join_with_or(_list_encoded_loaders())
        return f"its boxes are cut from whole images, and loader: {run['loader']} holds squares; use {usable}"
    if run["cache_samples"]:
        return "its boxes are cut from whole images, and cache_samples keeps squares; use false"
    if OF_WHOLE_IMAGES[run["augmentation"]].colours and run.spec["model"]["channels"] != COLOURS:
        return "it changes saturation and hue, which grey images do not have; use scale_and_aspect or light"
    return None


def _list_encoded_loaders() -> list[str]:
    """The loaders of encoded images."""
    return [name for name in IMAGE_LOADERS if not FORMATS[name].has_pixels]


def _join_with_or(names: list[str]) -> str:
    """Names in a message: ``a, b or c``."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


declare(
    "loader",
    Choice((*LOADERS, *IMAGE_LOADERS, NO_LOADER)),
    "How a dataset's files are loaded into memory. Of images (tfrecord, lmdb, jpeg_files, memory): the format from "
    "which they are read while the model trains; with memory they are decoded beforehand. none: of a command.",
    default=FromBenchmark(lambda spec, _: NO_LOADER if command.is_command(spec) else None, "kind"),
    refuse=_refuse_loader,
    refuse_on=_refuse_loader_on,
)

declare(
    "staging",
    Choice(("none", "local_copy")),
    "How the files reach the ranks. none: every rank reads them. local_copy: one rank per node copies them to the "
    "node's own storage.",
    default="none",
)

declare(
    "storage",
    Name(),
    "From which storage the ranks read their files. A key of `storage` in the machine's file: Snakemake copies "
    "them to its folder first. A key of `storage_on_nodes`: one rank per node copies them to the node. none: "
    "data_dir.",
    default="none",
    refuse=_refuse_storage,
)

declare(
    "input_pipeline",
    Choice(("tf_data", "keras_arrays")),
    "Whether tf.data makes the batches, or Keras gets the arrays.",
    default="tf_data",
    # CANDLE's scripts hand arrays to Keras, P1B3's a generator. The steps are the same with either, so both count;
    # as the keys of a point, they are never averaged (docs/method.md, the papers' way to train).
    refuse=_refuse_input_pipeline,
)

declare(
    "sharding",
    Choice(("none", "by_rank")),
    "Whether each rank trains on all samples (none) or on its own part (by_rank).",
    default="none",
)

declare(
    "prefetch_batches",
    Count(0, 10_000),
    "Batches that are made ahead of the training step; 0 for none.",
    default=1,
    unit="batches",
    default_in_papers=True,
    label="prefetched batches",
    refuse=_build_tf_data_refusal("prefetch_batches"),
)

declare(
    "map_parallel_calls",
    Count(0, 1024),
    "Number of batches that are made at the same time, each by its own thread. 0: for tables one at a time, for "
    "images cores_per_rank.",
    default=0,
    unit="batches",
    default_in_papers=True,
    label="parallel map calls",
    refuse=_build_tf_data_refusal("map_parallel_calls"),
)

declare(
    "cache_samples",
    Flag(),
    "Whether each image stays in memory after it was decoded, before its random changes. For images that are "
    "read while the model trains.",
    default=False,
    default_in_papers=True,
    refuse=_refuse_cache_samples,
)

declare(
    "shuffle_buffer_samples",
    Count(0),
    "Size of the buffer from which the next sample is drawn at random, which is then refilled in the files' order; "
    "0 for a random order of all samples.",
    default=0,
    unit="samples",
    default_in_papers=True,
    label="shuffle buffer (samples)",
    refuse=_refuse_shuffle_buffer,
)

declare(
    "augmentation",
    Choice((NONE, LIGHT, *OF_WHOLE_IMAGES)),
    "How images change in training, each epoch anew. none: the centre is taken. light: a random place of the image "
    "scaled to `resize`, half of them mirrored. scale_and_aspect: a random box of 8 to 100 % of the image, width / "
    "height 0.75 to 1.33, mirrored. slim: TF-Slim's with fast_mode off: a box of 5 to 100 %, one of four ways to "
    "scale it, mirrored, and brightness, saturation, hue and contrast in one of four orders.",
    default=LIGHT,
    refuse=_refuse_augmentation,
)
