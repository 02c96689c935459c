"""The environment in which jobs and ranks are started."""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from study.core import cores, isolation
from study.core.paths import SCRIPTS

# One declaration for every process that measures: ranks, the sampler, loading measurements, calibration, conversion.
# Begins of names of variables that steer Python, the libraries, their kernels and their memory, or our own launcher.
# They are cleared; runs take them from their definition or the machine's file.
STEERING = (
    "PYTHON", "HOROVOD_", "TF_", "XLA_", "KERAS_", "GRPC_", "PROTOCOL_BUFFERS_", cores.VARIABLE,
    "ONEDNN_", "DNNL_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NUMEXPR_", "NUMBA_", "NPY_", "NUMPY_",
    "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TRITON_", "PYTORCH_",
    "GLOO_", "RCCL_", "CUDNN_", "CUBLAS_", "NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING",
    "NCCL_", "OMP_", "GOMP_", "KMP_",
    # Of Open MPI, what grid keys set.
    "OMPI_MCA_coll_basic_", "OMPI_MCA_coll_tuned_", "OMPI_MCA_coll_sm_", "OMPI_MCA_coll_han_",
    "PANDAS_", "POLARS_", "RAYON_", "ARROW_", "DASK_", "FSSPEC_", "LMDB_", "JSIMD_", "LC_NUMERIC",
    "MALLOC_", "TCMALLOC_", "MIMALLOC_", "GLIBC_TUNABLES",
    # The same of AMD's, Arm's and Intel's libraries, and of those that decode images.
    "MIOPEN_", "ROCBLAS_", "HIPBLAS", "HIP_LAUNCH_BLOCKING", "AOCL_", "ARMPL_", "ITEX_", "PILLOW_", "OPENCV_",
    # Of what starts a user's command: precision, accumulation, devices and restarts (torchrun reads PET_).
    "JAX_", "ACCELERATE_", "DEEPSPEED_", "DS_", "FSDP_", "NVTE_", "TORCHELASTIC_", "PET_",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_", "CUDA_AUTO_BOOST",
)  # fmt: skip
# Folders of caches and settings of logs: they change no number.
NOT_CLEARED = (
    "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PYTHONIOENCODING", "PYTHONUTF8",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCH_LOGS", "TORCH_CPP_LOG_LEVEL", "TORCH_SHOW_CPP_STACKTRACES",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_HOME", "TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "JAX_COMPILATION_CACHE_DIR",
    "NUMBA_CACHE_DIR", "GRPC_VERBOSITY", "HOROVOD_LOG_LEVEL", "ACCELERATE_LOG_LEVEL",
    "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT",
)  # fmt: skip
SET = {
    "PYTHONNOUSERSITE": "1",  # no packages of the user's home
    "KERAS_HOME": os.devnull,  # holds no keras.json, which would set the layout, number type and epsilon of models
}
# Of each rank, by the run itself: `study.launch.variables`, so that a machine's file cannot set them.
SET_PER_RUN = (*SET, "PYTHONUNBUFFERED", "CUDA_DEVICE_ORDER", "STUDY_")
# Begins of names of variables that a site needs to run at all. They are kept, and the record shows them.
RECORDED = ("LD_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "UCX_", "FI_", "MPICH_", "I_MPI_", "MV2_", "HDF5_",
            "HSA_", "ZE_", "SYCL_")  # fmt: skip
ALWAYS_RECORDED = ("LD_PRELOAD", "LD_LIBRARY_PATH")  # also if they are not set: records of earlier versions tell none
# Files that steer as variables do (NCCL's and Open MPI's documentation); the record shows them too.
FILES = ("~/.nccl.conf", "/etc/nccl.conf", "~/.openmpi/mca-params.conf")
LONGEST_FILE = 2000  # characters of a file in a record
SESSION = "STUDY_SESSION"  # variable that identifies the Snakemake that started a job


def build_search_path() -> str:
    """PATH with this Python's folder first, so that its ``python`` and ``horovodrun`` are found first."""
    own = str(Path(sys.executable).parent)
    others = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder and folder != own]
    return os.pathsep.join([own, *others])


def build_measuring_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that measures: ``variables`` without all that steers training."""
    kept_variables = {name: value for name, value in variables.items() if not is_cleared(name)}
    own_path = isolation.keep_own_entries(variables.get("PYTHONPATH", ""))
    return {**kept_variables, **({"PYTHONPATH": own_path} if own_path else {}), **SET}


def is_cleared(name: str) -> bool:
    """True if a variable comes from the machine's file or the run only, never from the shell."""
    return name.startswith(STEERING) and name not in NOT_CLEARED


def collect_steering(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables, settings in `FILES` and scheduling that steer training, sorted by name, for the record.

    What is the same in all runs (`SET`) is left out, and so is PYTHONPATH, which `study.core.isolation` checks.
    """
    left_out = (*SET, *NOT_CLEARED, "PYTHONPATH")
    steering_variables = {
        name: value
        for name, value in variables.items()
        if name.startswith((*STEERING, *RECORDED)) and name not in left_out
    }
    always = dict.fromkeys(ALWAYS_RECORDED, "")
    return dict(sorted({**always, **steering_variables, **_read_setting_files(), **_describe_scheduling()}.items()))


def _describe_scheduling() -> dict[str, str]:
    """Priority and scheduling policy of this process where they are not the usual ones; children inherit them."""
    nice, policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    names = {os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle", os.SCHED_FIFO: "fifo", os.SCHED_RR: "round robin"}
    return {**({"nice": str(nice)} if nice else {}), **({"scheduling": names[policy]} if policy in names else {})}


def is_recorded(steering: Mapping[str, str], name: str) -> bool:
    """True if a record's ``steering`` would show ``name`` if it was set; older records have only `STEERING`."""
    return name.startswith(STEERING) or ALWAYS_RECORDED[0] in steering


def _read_setting_files() -> dict[str, str]:
    """{file: its settings, one a line, without comments} of the existing `FILES`."""
    settings_by_file = {}
    for name in FILES:
        try:
            lines = Path(name).expanduser().read_text(encoding="utf-8", errors="backslashreplace").splitlines()
        except (OSError, RuntimeError):  # RuntimeError: the user has no home
            continue
        settings = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if settings:
            settings_by_file[name] = "\n".join(settings)[:LONGEST_FILE]
    return settings_by_file


def keep_only_variables(names: Iterable[str]) -> None:
    """Remove all other variables from this process's environment."""
    for name in os.environ.keys() - set(names):
        del os.environ[name]


def prepare_for_jobs(account: str | None, is_main_process: bool) -> list[str]:
    """Set this process's environment so that jobs use this Python, unless a conda environment precedes it.

    Returns the names of the variables that were removed.

    account: the account of batch jobs, if the configuration names one. is_main_process: whether this is the Snakemake
    that the user started; it opens a session, which its jobs inherit. Jobs inherit nothing that steers, see
    `build_measuring_environment`.
    """
    clean = build_measuring_environment(os.environ)
    removed = sorted(os.environ.keys() - clean.keys())
    keep_only_variables(clean)
    os.environ.update(clean)
    os.environ["PATH"] = build_search_path()
    os.environ["SCRIPTS"] = str(SCRIPTS)
    if is_main_process or SESSION not in os.environ:
        os.environ[SESSION] = f"{time.time_ns()}.{os.getpid()}"
    if account:
        os.environ["STUDY_ACCOUNT"] = account
    return removed
