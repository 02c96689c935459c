"""Every grid key, declared once, in the order in which they name a run.

A new key with a default needs a declaration here and the code that implements it. Everything else is derived from here:
the study's schema, the run's identity, the record's schema, the columns that keep different runs apart, the comparison
with published workloads, and the reference in docs/reference/grid-keys.md. Finished runs stay valid when a key is
added; a default never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from study.core.registry import Registry
from study.data.images.formats import FORMATS
from study.data.loaders import TRAINING_LOADERS
from study.data.samples import Can
from study.experiment.parameter import Choice, Count, Flag, FromBenchmark, Name, Number, Parameter

if TYPE_CHECKING:
    from study.experiment.study import PlannedRun

PARAMETERS: Registry[Parameter] = Registry("grid key")
IMAGE_LOADERS = tuple(FORMATS)
BROADCASTS = ("node_broadcast", "job_broadcast")


def declare(parameter: Parameter) -> Parameter:
    """Register a grid key."""
    return PARAMETERS.add(parameter.name, parameter)


def observing() -> list[str]:
    """The keys of which runs with another value than the default give no timings."""
    return [name for name, parameter in PARAMETERS.items() if parameter.observes]


def is_observed(run: Any, by: str | None) -> bool:
    """Whether a run (``run[key]`` is a key's value) is observed by this key and no other; by None, by no key."""
    return [name for name in observing() if run[name] != PARAMETERS[name].default] == ([by] if by else [])


def _batch_scaling(run: PlannedRun) -> str | None:
    if run["scaling"] == "batch" and run["batch_scaling"] == "none":
        return (
            "scaling: batch needs one of linear, square_root, cubic_root; "
            "a batch size that does not grow with the ranks is scaling: weak"
        )
    return None


def _warmup(run: PlannedRun) -> str | None:
    epochs = run["warmup_epochs"]
    if epochs > run.epochs_per_rank:
        return f"{epochs} is more than the {run.epochs_per_rank} epochs of a rank"
    if epochs and run["learning_rate_scaling"] == "none":
        return "there is nothing to warm up to with learning_rate_scaling: none"
    return None


def _by_layer(run: PlannedRun) -> str | None:
    if run["learning_rate_by_layer"] == "lars" and run.spec["optimizer"] != "sgd":
        return f"LARS is momentum SGD, but {run.dataset.benchmark}'s optimizer is {run.spec['optimizer']}; use none"
    return None


def _plateau(run: PlannedRun) -> str | None:
    if run["plateau_epochs"] and run["warmup_epochs"]:
        return "the warm-up sets the learning rate in each step and would undo a reduction; give two grids"
    return None


def _loader(run: PlannedRun) -> str | None:
    of_images, name = run["loader"] in IMAGE_LOADERS, run.dataset.benchmark
    if of_images != (run.kind == "images"):
        fitting = IMAGE_LOADERS if run.kind == "images" else TRAINING_LOADERS
        return f"{run['loader']}: {name} trains on {run.kind}; use {', '.join(fitting[:-1])} or {fitting[-1]}"
    return None


def _staging(run: PlannedRun) -> str | None:
    if run["staging"] != "none" and run.kind == "images":
        return "images are read while the model trains, from where they are; use none"
    return None


def _input_checksum(run: PlannedRun) -> str | None:
    if run["input_checksum"] and run.kind != "images":
        return f"{run.dataset.benchmark} trains on {run.kind}, whose loaders the tests compare; it is for images"
    if run["input_checksum"] and run["emulated_ranks"] > 1:
        return "an emulated rank's batches are made within its step; use emulated_ranks: 1"
    return None


def _storage(run: PlannedRun) -> str | None:
    if run["storage"] != "none" and run.dataset.definition["source"] == "path":
        return f"dataset '{run.dataset.key}' is your own files, which are read from where they are; use none"
    return None


def _input_pipeline(run: PlannedRun) -> str | None:
    if run["input_pipeline"] == "keras_arrays" and run.kind == "images":
        return "images are decoded one batch at a time, so there is no array to hand to Keras; use tf_data"
    if run["input_pipeline"] == "keras_arrays" and Can.IN_MEMORY not in run.source_can:
        return (
            f"{run.dataset.benchmark}'s samples are joined one batch at a time, so there is no array to hand to Keras; "
            "use tf_data"
        )
    return None


def _straggler_loads(run: PlannedRun) -> str | None:
    if run["straggler_loads"] and not run["trace"]:
        return "creates a straggler to look at in the timeline: it needs trace: true"
    if run["straggler_loads"] and run["staging"] != "none":
        return "a rank that loads more often needs staging: none"
    return None


def _checkpoints(run: PlannedRun) -> str | None:
    if run["checkpoint_epochs"] and (run["trace"] or run["profile"]):
        return "a traced or profiled run has no checkpoints; give two grids"
    if run["checkpoint_epochs"] and run["input_pipeline"] == "keras_arrays":
        return (
            "a run cannot be resumed exactly with input_pipeline: keras_arrays, since Keras keeps the order of the "
            "samples to itself; use tf_data"
        )
    return None


def _trace(run: PlannedRun) -> str | None:
    if run["trace"] and run["staging"] in BROADCASTS:
        return (
            f"with staging: {run['staging']} the timeline cannot tell the broadcast of the data from that of the "
            "weights; trace with staging: none or local_copy"
        )
    if run["trace"] and run.gpus == 1:
        return "one rank has no communication to trace; give gpus of 2 or more"
    return None


def _profile(run: PlannedRun) -> str | None:
    return "a run cannot be traced and profiled at once; give two grids" if run["trace"] and run["profile"] else None


def _allreduce_sweep(run: PlannedRun) -> str | None:
    if run["allreduce_sweep"] and run.gpus == 1:
        return "one rank has no communication to time; give gpus of 2 or more"
    if run["allreduce_sweep"] and (run["trace"] or run["profile"]):
        return "tracing and profiling slow the allreduces; give two grids"
    return None


def _emulated_ranks(run: PlannedRun) -> str | None:
    if run["emulated_ranks"] == 1:
        return None
    if run.gpus != 1:
        return f"one rank emulates others, but gpus is {run.gpus}; give gpus: 1"
    if run["input_pipeline"] == "keras_arrays":
        return "Keras keeps the order of the samples to itself with input_pipeline: keras_arrays; use tf_data"
    if run["profile"]:
        return "the profile of an emulated run says nothing about its ranks; give two grids"
    return None


def _gradient_noise(run: PlannedRun) -> str | None:
    if run["gradient_noise_every"] and run["sharding"] == "none" and not run.spec["shuffle"]:
        return f"all ranks train {run.dataset.benchmark} on the same batches with sharding: none; use by_rank"
    return None


# Keys that need Horovod, and why; with parameter_server also those of the second list.
HOROVOD_ONLY = {
    "trace": "the timeline is Horovod's",
    "allreduce_sweep": "the sweep times Horovod's allreduces",
    "emulated_ranks": "emulated ranks stand for Horovod's",
    "gradient_noise_every": "the strategy does not show its gradients",
    "straggler_loads": "the straggler is a rank of Horovod",
    "checkpoint_epochs": "a run resumes through Horovod's broadcast",
    "input_checksum": "the input of a strategy is not measured",
}
NOT_WITH_SERVERS = {
    "warmup_epochs": "the learning rate cannot be set before each step, which a worker makes when it can",
    "plateau_epochs": "a reduction needs an epoch in which all workers are in step",
    "profile": "the chief trains nothing; there is no rank to profile",
    "learning_rate_by_layer": "a layer's norm needs the whole layer, whose parts may be on several servers",
}


def _strategy(run: PlannedRun) -> str | None:
    """Keys that do not fit the strategy; a key at its default is no matter."""
    strategy = run["strategy"]
    if strategy == "horovod":
        return None
    refused = HOROVOD_ONLY | (NOT_WITH_SERVERS if strategy == "parameter_server" else {})
    for name, why in refused.items():
        if run[name] != PARAMETERS[name].default:
            return f"{strategy} cannot be combined with {name}: {why}; give two grids"
    if run["staging"] in BROADCASTS or (strategy == "parameter_server" and run["staging"] != "none"):
        return f"{strategy} cannot be combined with staging: {run['staging']}; use none"
    if run["input_pipeline"] != "tf_data" or Can.RANDOM_ACCESS not in run.source_can:
        return f"{strategy} needs input_pipeline: tf_data and samples at any position"
    if strategy == "parameter_server" and run.kind == "images" and not FORMATS[run["loader"]].has_pixels:
        return f"the chief sends each worker its images, decoded: {run['loader']} cannot; use loader: memory"
    return None


def _servers(run: PlannedRun) -> str | None:
    if run["strategy"] == "parameter_server":
        return None if run["servers"] else "strategy: parameter_server needs 1 or more"
    return f"{run['servers']} servers need strategy: parameter_server" if run["servers"] else None


def _server_placement(run: PlannedRun) -> str | None:
    if run["server_placement"] != "round_robin" and run["strategy"] != "parameter_server":
        return "needs strategy: parameter_server"
    return None


declare(Parameter("benchmark", Name(), "The CANDLE benchmark: a file name in config/benchmarks without .yaml."))
declare(
    Parameter(
        "dataset",
        Name(),
        "The dataset: a key of the study's datasets; the benchmark's name by default. In records: the dataset's id, "
        "which is the same in all studies.",
    )
)
declare(
    Parameter(
        "scaling",
        Choice(("strong", "weak", "batch")),
        "What happens as ranks are added. strong: the epochs are divided among the ranks. weak: each rank trains all "
        "epochs. batch: the batch size of a rank grows too, see batch_scaling.",
    )
)
declare(
    Parameter(
        "epochs",
        Count(),
        "Epochs of the run; under strong scaling of all ranks together.",
        default=FromBenchmark(lambda spec, scaling: spec["epochs"].get(scaling), "epochs"),
    )
)
declare(Parameter("gpus", Count(), "Number of ranks, one per GPU; on machines without GPUs one per node or core."))
declare(
    Parameter(
        "batch_size",
        Count(),
        "Batch size before batch scaling.",
        default=FromBenchmark(lambda spec, scaling: spec["batch_size"], "batch_size"),
        unit="samples",
    )
)
declare(
    Parameter(
        "batch_scaling",
        Choice(("none", "linear", "square_root", "cubic_root")),
        "How the batch size of a rank grows with N ranks: not at all, by N, by the square root or the cube root of N. "
        "Required with scaling: batch, which refuses none.",
        default="none",
        refuse=_batch_scaling,
    )
)
declare(
    Parameter(
        "learning_rate_scaling",
        Choice(("linear", "none")),
        "Whether the learning rate is multiplied by the number of ranks (linear scaling rule).",
        default="linear",
        papers={"icpp2019": "linear"},
    )
)
declare(
    Parameter(
        "base_learning_rate",
        Number(),
        "The learning rate of one rank, which learning_rate_scaling multiplies; 0 for the benchmark's.",
        default=0.0,
        papers={"icpp2019": 0.0, "sc18": 0.0},
    )
)
declare(
    Parameter(
        "warmup_epochs",
        Count(0),
        "Epochs in which the learning rate grows from one rank's rate to the scaled rate.",
        default=0,
        papers={"icpp2019": 0, "sc18": 0},
        label="warm-up epochs",
        refuse=_warmup,
    )
)
declare(
    Parameter(
        "plateau_epochs",
        Count(0),
        "The learning rate falls to a tenth when the validation loss has not improved for so many epochs (Keras's "
        "ReduceLROnPlateau; CANDLE's NT3 has 10); 0 for never. The papers do not mention it.",
        default=0,
        unit="epochs",
        papers={"icpp2019": 0, "sc18": 0},
        label="epochs to a reduction on a plateau",
        refuse=_plateau,
    )
)
declare(
    Parameter(
        "learning_rate_by_layer",
        Choice(("none", "lars")),
        "Whether each layer's learning rate is scaled by the norms of its weights and gradient (LARS), for large "
        "batches. The learning rate then multiplies 0.001 x norm of the weights / norm of the gradient.",
        default="none",
        papers={"icpp2019": "none", "sc18": "none"},
        refuse=_by_layer,
    )
)
declare(
    Parameter(
        "loader",
        Choice((*TRAINING_LOADERS, *IMAGE_LOADERS)),
        "How a dataset's files are loaded into memory. Of images (tfrecord, lmdb, jpeg_files, memory): the format from "
        "which they are read while the model trains; with memory they are decoded beforehand.",
        papers={"sc18": "read_csv"},
        refuse=_loader,
    )
)
declare(
    Parameter(
        "staging",
        Choice(("none", "local_copy", *BROADCASTS)),
        "How the files reach the ranks. none: every rank reads them. local_copy: one rank per node copies them to the "
        "node's own storage. node_broadcast, job_broadcast: one rank per node, or of the job, reads and broadcasts.",
        default="none",
        papers={"icpp2019": "none", "sc18": "none", "han2019": "none"},
        refuse=_staging,
    )
)
declare(
    Parameter(
        "storage",
        Name(),
        "From which storage the ranks read their files: a key of `storage` in the machine's file, to whose folder they "
        "are copied first. none: from data_dir.",
        default="none",
        papers={"icpp2019": "none", "sc18": "none"},
        refuse=_storage,
    )
)
declare(
    Parameter(
        "input_pipeline",
        Choice(("tf_data", "keras_arrays")),
        "Whether tf.data gathers the batches, or Keras is handed the arrays.",
        default="tf_data",
        # CANDLE's scripts hand arrays to Keras, P1B3's a generator. The steps are the same with either, so both count;
        # as the keys of a point, they are never averaged (docs/method.md, the papers' way to train).
        papers={"icpp2019": ("keras_arrays", "tf_data"), "sc18": ("keras_arrays", "tf_data")},
        refuse=_input_pipeline,
    )
)
declare(
    Parameter(
        "sharding",
        Choice(("none", "by_rank")),
        "Whether each rank trains on all samples or on its own part.",
        default="none",
        papers={"icpp2019": "none", "sc18": "none", "han2019": "by_rank"},
    )
)
declare(
    Parameter(
        "link_mbit_per_s",
        Count(0),
        "Rate of each host's network link, in both directions, on the machine `lab`; 0 for no limit.",
        default=0,
        unit="Mbit/s",
        papers={"icpp2019": 0, "sc18": 0, "han2019": 0},
        label="link rate (Mbit/s)",
    )
)
declare(
    Parameter(
        "straggler_loads",
        Count(0, 1000),
        "How many more times the last rank loads its files, so that it becomes a straggler.",
        default=0,
        refuse=_straggler_loads,
    )
)
declare(
    Parameter(
        "checkpoint_epochs",
        Count(0),
        "A checkpoint is written after every so many epochs; 0 for none.",
        default=0,
        unit="epochs",
        papers={"icpp2019": 0, "sc18": 0},
        label="epochs between checkpoints",
        refuse=_checkpoints,
    )
)
declare(
    Parameter(
        "trace",
        Flag(),
        "Whether Horovod's timeline is recorded. It slows the run, so a traced run gives no timings. Needs gpus of 2 "
        "or more.",
        default=False,
        refuse=_trace,
        observes=True,
    )
)
declare(
    Parameter(
        "profile",
        Flag(),
        "Whether the ranks run under cProfile. It slows the run, so a profiled run gives no timings.",
        default=False,
        refuse=_profile,
        observes=True,
    )
)
declare(
    Parameter(
        "allreduce_sweep",
        Flag(),
        "Whether the ranks time allreduces of 4 KiB to 16 MiB after the evaluation. Such a run gives no other timings.",
        default=False,
        refuse=_allreduce_sweep,
        observes=True,
    )
)
declare(
    Parameter(
        "emulated_ranks",
        Count(1, 100_000),
        "As how many ranks one rank trains: the same epochs, batches, learning rate and averaged gradients as on so "
        "many ranks, one after the other; 1 for itself. Needs gpus: 1. The run gives no timings.",
        default=1,
        unit="ranks",
        refuse=_emulated_ranks,
        observes=True,
    )
)
declare(
    Parameter(
        "gradient_noise_every",
        Count(0),
        "The gradient noise scale is measured in every so many steps; 0 for not at all.",
        default=0,
        unit="steps",
        papers={"icpp2019": 0, "sc18": 0},
        label="steps between measurements of the gradient noise",
        refuse=_gradient_noise,
    )
)
declare(
    Parameter(
        "input_checksum",
        Flag(),
        "Whether a checksum of all values that the model gets is recorded, by which input formats are compared. It "
        "slows the input, so such a run gives no timings.",
        default=False,
        refuse=_input_checksum,
        observes=True,
    )
)
declare(
    Parameter(
        "strategy",
        Choice(("horovod", "parameter_server", "multi_worker_mirrored")),
        "How the ranks train together. horovod: allreduce by Horovod. parameter_server: the ranks are workers that "
        "send gradients to servers, asynchronously (TensorFlow). multi_worker_mirrored: allreduce by TensorFlow.",
        default="horovod",
        papers={"icpp2019": "horovod", "sc18": "horovod"},
        refuse=_strategy,
    )
)
declare(
    Parameter(
        "servers",
        Count(0, 1000),
        "Number of parameter servers. Needs strategy: parameter_server, which refuses 0.",
        default=0,
        refuse=_servers,
    )
)
declare(
    Parameter(
        "server_placement",
        Choice(("round_robin", "min_size")),
        "How variables are placed on the servers. round_robin: whole, in turn. min_size: large ones are split over the "
        "servers, into parts of 256 KiB or more (TensorFlow's MinSizePartitioner).",
        default="round_robin",
        refuse=_server_placement,
    )
)
declare(
    Parameter(
        "repeat",
        Count(1, 1000),
        "Which repeat this is; a grid's key repeats says how many there are. Repeats are the blocks of an experiment.",
        default=1,
        is_repeat=True,
    )
)
