"""The folder scaling/ of a measured command line: Snakefile, configuration, benchmark and study."""

import dataclasses
import glob
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from study.commands.measure import FOLDER, MACHINE
from study.core import paths, validation
from study.core.errors import StudyError
from study.core.files import write_text
from study.workloads import command
from study.workloads.command import placeholders

RANKS = "{ranks}"
# Programs that start ranks, by their own option for how many; the first one is used if a line has none.
STARTERS: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("--nproc-per-node", "--nproc_per_node"),
    "accelerate": ("--num_processes", "--num-processes"),
    "deepspeed": ("--num_gpus", "--num-gpus"),
    "horovodrun": ("-np", "--num-proc"),
    "mpirun": ("-np", "-n", "--np"),
    "mpiexec": ("-n", "-np"),
    "srun": ("-n", "--ntasks"),
    "fabric": ("--devices",),
}
SUBCOMMANDS = {"accelerate": "launch", "fabric": "run"}  # by which these start ranks
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
MOST_CODE_FILES = 50
DATA_FOLDERS = frozenset({"data", "dataset", "datasets", "cache", ".cache"})  # what a run writes there is data
STATE = re.compile(r"ckpt|checkpoint|snapshot|latest|resume", re.I)  # of training, wherever it is
MARK = "# Written by study measure; sha256 of the lines below: "
SNAKEFILE = """\
configfile: "config/config.yaml"


module scaling:
    snakefile:
        {snakefile!r}
    config:
        config


use rule * from scaling
"""


STATUS_S = 20  # between two questions to Slurm
PROFILE = """\
executor: cluster-generic
jobs: 1                  # runs that are compared run one after the other
latency-wait: 60
seconds-between-status-checks: {status_s}
cluster-generic-cancel-cmd: {cancel!r}
"""


@dataclass(frozen=True)
class Partition:
    """A partition of Slurm, by its first kind of nodes. cores: CPUs of a node, as Slurm counts; gpus: of a node."""

    name: str
    nodes: int
    cores: int
    gpus: int

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a node: one for each GPU, else for each core."""
        return self.gpus or self.cores

    def describe_machine(self) -> dict[str, Any]:
        """The keys of a machine's file."""
        return {
            "description": f"partition {self.name} of Slurm, as study measure uses it",
            "scheduler": "slurm",
            "launcher": "srun",
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "cores_per_rank": max(1, self.cores // self.ranks_per_node),
            "gpus_per_rank": 1 if self.gpus else 0,
            "power_sensors": ["nvml", "rapl"],
            "job_options": [f"--partition={self.name}"],
        }


def read_partition(name: str) -> Partition:
    """The nodes of a partition, by sinfo; raises `StudyError` without Slurm, or without the partition."""
    try:
        line = ["sinfo", "--noheader", "--partition", name, "--format", "%D %c %G"]
        answer = subprocess.run(line, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StudyError(f"--partition: sinfo gives no answer ({error}); start this on a login node of Slurm") from None
    match = re.match(r"(\d+) (\d+)\+? (\S+)", answer.stdout)
    if match is None:
        raise StudyError(f"--partition: sinfo shows no nodes of a partition {name}: {answer.stderr.strip() or 'none'}")
    gpus = re.search(r"gpu:(?:[^:,(]+:)?(\d+)", match[3])
    return Partition(name, int(match[1]), int(match[2]), int(gpus[1]) if gpus else 0)


@dataclass(frozen=True)
class MeasuredCommand:
    """A command line to be measured, and how.

    Attributes:
        words: of the command, with ``{ranks}`` where it starts its ranks itself.
        folder: in which it is started.
        counts: of ranks, ascending.
        scaling: strong or weak.
        batch_size: of a rank, or None.
        prefix: of the virtual environment or conda environment of its packages; None for the study's own.
        metrics: {name: pattern}. success: a pattern that shows that the work was done, or None.
        partition: of Slurm, to which runs are submitted; None for this machine.
        fresh, reuses: files that each run writes anew, and those that runs share; as in a benchmark's file.
    """

    name: str
    words: Sequence[str]
    folder: Path
    counts: Sequence[int]
    scaling: str = "strong"
    repeats: int = 3
    epochs: int = 1
    batch_size: int | None = None
    prefix: Path | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    success: str | None = None
    time_limit_s: int = 3600
    gpus: int = 0
    partition: Partition | None = None
    fresh: Sequence[str] = ()
    reuses: Sequence[str] = ()

    @property
    def starts_own_ranks(self) -> bool:
        """True if the command is started once and starts its ranks itself."""
        return has_ranks(self.words)

    @cached_property
    def code(self) -> list[str]:
        """The files whose content is the program's, see `list_code`."""
        return list_code(self.words, self.folder)

    @cached_property
    def results_dir(self) -> str:
        """The folder of the results, one for each version of the program's code, so that versions are never mixed."""
        digest = hashlib.sha256()
        for name in self.code:
            digest.update(f"{name}\0".encode() + (self.folder / name).read_bytes())
        return f"results/{digest.hexdigest()[:8]}"

    def make_files(self) -> dict[str, Any]:
        """The content of each file, by its path in `FOLDER`: text of the Snakefile, else data for YAML."""
        benchmark = {
            "title": f"measured command {self.name}",
            "kind": command.KIND,
            "folder": "..",
            "command": list(self.words),
            "starts": command.JOB if self.starts_own_ranks else command.RANK,
            "work": command.SAMPLES,
            "epochs": {"strong": self.epochs, "weak": self.epochs},
            "batch_size": self.batch_size,
            "code": self.code,
            "environment": {"python": str(self.prefix)} if self.prefix else None,
            "metrics": dict(self.metrics),
            "success": [self.success] if self.success else None,
        }
        benchmark = {key: each for key, each in benchmark.items() if each}
        files = {"fresh": list(self.fresh), "reuses": list(self.reuses)}
        here = {
            "base": "local",
            "launcher": "processes",
            "description": "this machine, as study measure uses it",
            "ranks_per_node": max(self.counts),
            "gpus_per_rank": 1 if self.gpus else 0,
        }
        machine = self.partition.describe_machine() if self.partition else here
        config = {"study": self.name, "machine": MACHINE, "data_dir": "data", "results_dir": self.results_dir,
                  "show_each_block": True}  # fmt: skip
        cancel = str(paths.SCRIPTS / "cancel_jobs.sh")
        profile = {"profiles/slurm/config.yaml": PROFILE.format(cancel=cancel, status_s=STATUS_S)}
        return {
            **(profile if self.partition else {}),
            "Snakefile": SNAKEFILE.format(snakefile=str(paths.ROOT / "Snakefile")),
            "config/config.yaml": config,
            f"config/machines/{MACHINE}.yaml": {**machine, "time_limit_s": self.time_limit_s},
            f"config/benchmarks/{self.trial}.yaml": benchmark,
            f"config/benchmarks/{self.name}.yaml": benchmark | {key: each for key, each in files.items() if each},
            f"config/studies/{self.trial}.yaml": self._make_study(self.trial, self.counts[:1], 1),
            f"config/studies/{self.name}.yaml": self._make_study(self.name, self.counts, self.repeats),
        }

    @property
    def trial(self) -> str:
        """Name of the study with one uncounted run on the fewest ranks."""
        return f"{self.name}_trial"

    def _make_study(self, benchmark: str, counts: Sequence[int], repeats: int) -> dict[str, Any]:
        grid = {"benchmark": benchmark, "scaling": self.scaling, "gpus": list(counts), "repeats": repeats}
        return {"description": f"measured command {self.name}", "runs": [grid], "tables": ["scaling"]}


def sort_written_files(measured: MeasuredCommand, written: Sequence[str]) -> MeasuredCommand:
    """The command with the files that its trial wrote: data are shared by runs, others are written anew.

    written: paths relative to its folder. Numbers in names, such as those of ranks, may be others in other runs.
    """
    own = [path for path in written if not path.startswith(placeholders.RUN_FOLDER)]
    reuses = [path for path in own if DATA_FOLDERS.intersection(Path(path).parts[:-1]) and not STATE.search(path)]
    others = [re.sub("[0-9]+", "[0-9]*", glob.escape(path)) for path in own if path not in reuses]  # model_rank1.pt
    fresh = [f"{placeholders.WRITTEN}{each}" for each in dict.fromkeys(others)]
    return dataclasses.replace(measured, fresh=fresh, reuses=reuses)


def write_files(measured: MeasuredCommand) -> list[Path]:
    """Write the files of a measured command; returns those that are new or changed.

    Raises `StudyError` for one that was not written by this function or was changed afterwards, and for a folder that
    cannot be written.
    """
    import yaml

    folder, written = measured.folder / FOLDER, []
    texts = {
        folder / name: content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False, width=120)
        for name, content in measured.make_files().items()
    }
    for path in texts:
        if path.exists() and not _is_unchanged(path):
            raise StudyError(
                f"{validation.shorten_path(path)} was written or changed by hand and is kept; use it with study run in "
                f"{FOLDER}/, or measure under another --name"
            )
    try:
        for path, text in texts.items():
            whole = f"{MARK}{_digest(text)}\n{text}"
            if not path.exists() or path.read_text(encoding="utf-8") != whole:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, whole)
                written.append(path)
    except OSError as error:
        raise StudyError(f"{error.filename}: {error.strerror}; start this in a folder that you may write") from None
    return written


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_unchanged(path: Path) -> bool:
    try:
        first, _, others = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return False
    return first == f"{MARK}{_digest(others)}"


def mark_ranks(words: Sequence[str]) -> list[str]:
    """The words of a command line with ``{ranks}`` as the number of ranks of a known starter, such as torchrun.

    Braces that are no placeholder are doubled. Unchanged if the line has ``{ranks}`` already, or no known starter.
    """
    marked = [_escape_braces(word) for word in words]
    if has_ranks(marked):
        return marked
    starter, first = _find_starter(words)
    if starter is None:
        return marked
    options = STARTERS[starter]
    for place, word in enumerate(marked[first:], first):
        option, is_joined, _ = word.partition("=")
        if option in options and is_joined:
            marked[place] = f"{option}={RANKS}"
            return marked
        if option in options and place + 1 < len(marked):
            marked[place + 1] = RANKS
            return marked
    marked[first:first] = [options[0], RANKS]
    return marked


def has_ranks(words: Sequence[str]) -> bool:
    """True if a command line has ``{ranks}``, so that it is started once and starts its ranks itself."""
    return any(RANKS in word for word in words)


def _find_starter(words: Sequence[str]) -> tuple[str | None, int]:
    """(The known program that starts ranks or None, the place of the first word after it)."""
    first = _skip_env(words)
    program, after, module = Path(words[first]).name, first + 1, words[first + 1 : first + 3]
    if program in SUBCOMMANDS:
        return (program, after + 1) if list(module[:1]) == [SUBCOMMANDS[program]] else (None, after)
    if program.startswith("python") and list(module[:1]) == ["-m"] and (starter := MODULES.get("".join(module[1:]))):
        return starter, after + 2
    return (program if program in STARTERS else None), after


def _skip_env(words: Sequence[str]) -> int:
    """The place of the program that a line starts: behind ``env NAME=VALUE``, else the first word."""
    if Path(words[0]).name != "env":
        return 0
    return next((place for place, word in enumerate(words[1:], 1) if "=" not in word and word[0] != "-"), 0)


def _escape_braces(word: str) -> str:
    """The word with doubled braces, except those of known placeholders."""
    known = "|".join(placeholders.DERIVED)
    parts = re.split(rf"(\{{(?:{known})\}})", word)
    return "".join(
        part if place % 2 else part.replace("{", "{{").replace("}", "}}") for place, part in enumerate(parts)
    )


def list_code(words: Sequence[str], folder: Path) -> list[str]:
    """The files whose content is the program's: its scripts in the folder, and the Python modules beside them."""
    scripts = [word for word in words if word.endswith(command.SCRIPTS) and (folder / word).is_file()]
    folders = {(folder / script).parent for script in scripts if script.endswith(".py")}
    modules = sorted({path for each in folders for path in each.glob("*.py") if path.is_file()})
    beside = [str(path.relative_to(folder)) for path in modules if path.is_relative_to(folder)]
    return list(dict.fromkeys([*scripts, *(beside if len(beside) <= MOST_CODE_FILES else [])]))


def name_command(words: Sequence[str]) -> str:
    """A name for a command: that of its first script, else of its program."""
    script = next((word for word in words if word.endswith(command.SCRIPTS)), words[0])
    name = re.sub("[^A-Za-z0-9_]+", "_", Path(script).stem).strip("_")
    return name or "command"


def find_prefix(words: Sequence[str], given: str | None, variables: Mapping[str, str]) -> Path | None:
    """The prefix of the environment in which the command or, if that has none, the shell's Python is found; or None.

    given: by the user. Raises `StudyError` if the command is not found.
    """
    path = variables.get("PATH", "")
    if given is not None:
        prefix = paths.make_absolute(given)
        if not (prefix / "bin" / "python").exists():
            raise StudyError(f"--python: {prefix / 'bin' / 'python'} does not exist; give a virtual environment")
        path = f"{prefix / 'bin'}:{path}"
    word = words[_skip_env(words)]
    program = shutil.which(word, path=path)
    if program is None:
        if Path(word).is_file():
            raise StudyError(f"{word}: is not executable; write chmod +x {word}, or its interpreter before it")
        raise StudyError(f"{word}: no such program in PATH; give its path, or its environment with --python")
    if given is not None:
        return prefix
    python = shutil.which("python", path=path)
    found = [Path(each).parent.parent for each in (program, python) if each]  # of mpirun python, that of python
    environments = [each for each in found if (each / "pyvenv.cfg").exists() or (each / "conda-meta").is_dir()]
    prefixes = [*environments, *(found[:1] if Path(program).name.startswith("python") else [])]
    return next((each for each in prefixes if (each / "bin" / "python").exists() and each != Path(sys.prefix)), None)
