"""What the documents name, and whether it exists: files, commands, options, keys, columns, tables, figures, links."""

import ast
import functools
import importlib
import re

import yaml
from snakemake.cli import get_argument_parser
from tracked import tracked

from study.commands.main import VERBS
from study.commands.options import Step
from study.core import fields, validation
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.experiment import expansion, schemas
from study.experiment.parameters import PARAMETERS
from study.machines import machine
from study.report.figures import description
from study.report.findings import declaration
from study.report.papers import declaration as papers
from study.report.tables import TABLES

# What the documents name although the repository does not have it, with the reason.
ELSEWHERE = {
    "the reader or a command of theirs writes it": "config/references/<machine>/<study>.yaml old_new "
    "config/machines/pair.yaml config/studies/pair.yaml pair mine hosts.txt summit_theta config/studies/mine.yaml "
    "config/machines/mine.yaml config/benchmarks/wave.yaml scripts/study/workloads/wave.py wave waves "
    "config/benchmarks/tide.yaml scripts/study/workloads/tide.py tide tides "
    "config/benchmarks/mine.yaml validation_mae test_mae scripts/make_my_files.py config/references "
    "config/machines/cluster.yaml points.csv docs/_build/html/index.html",
    "in the folder of a program": "log.txt out/*.pt .study .study/aside .study/files.json",
    "where the reader's clone is": "/path/to/study/profiles/local /path/to/study/profiles/default "
    "/path/to/study/Snakefile",
    "of torchrun": "--nproc-per-node",
    "part of a name that stands whole beside it": "ci95",
    "in the papers' code": "TF_Run TextReader comp_epochs",
    "in TF-Slim's code": "fast_mode",
    "in CANDLE's code": "p1b3_baseline_keras2.py category_cutoffs initialization conv test_cell_split",
    "TensorFlow, Keras, pandas, dask or Horovod": "c_parser_wrapper.py callbacks.py horovod/_keras/__init__.py "
    "Model.fit TFE_Py_Execute TFE_Py_FastPathExecute horovod_allreduce image/encoded image/class/label",
    "PyTorch": "Module",
    "build settings of Horovod or of a compiler": "HOROVOD_GPU HOROVOD_CPU_OPERATIONS HOROVOD_NCCL_HOME NCCL_HOME CC",
    "variables of Open MPI": "OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "Snakemake, Slurm and its plugin": "--exclusive --no-requeue --slurm-status-command "
    "--slurm-array-jobs slurm_account slurm_partition cpus_per_task tasks_per_gpu SLURM_MPI_TYPE",
    "kernels and drivers": "drivers/powercap/intel_rapl_common.c drivers/hwmon/occ/common.c hw/occ-sensor.c accel_ "
    "accel0_ accel3_ pynvml",
    "folders of other systems": "__MACOSX",
    "apptainer": "--nv --rocm",
    "MLPerf's events": "mlperf_logging init_start init_stop eval_accuracy eval_loss",
    "other programs, file systems and drivers": "occ-hwmon nvidia-smi hostnamectl ssh-copy-id tmux screen "
    "snakeviz eno2 enp5s0 chrome://tracing",
}
PLACEHOLDER = re.compile(
    r"<\w+>|\b(?:NAME|PROFILE|MACHINE|STUDY|GOAL|VERSION|DIR|FILE|REASON|PROJECT)\b|(?<=: )[Nk]$|\$\w+"
)
SPAN = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^( *)```\{?(\w*)\}?\n(.*?)^ *```", re.S | re.M)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILE = re.compile(
    r"[\w*~-]*(?:\.\w+)*\.(?:py|md|csv|jsonl|json|ya?ml|npy|npz|svg|pdf|gz|html|tex|log|pstats|sh|txt|smk)"
)
COMMANDS = ("make", "snakemake", "python", "study")
ON_REQUEST = ("recommendation", "prediction", "prediction_check", "prediction_curves", "performance_check", "tuner")
OUTPUTS = ("results", "data", ".cluster", ".venv", "checkpoints", "recommendation", "tuner", "check", "tables",
           "figures")  # fmt: skip


@functools.cache
def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def existing():
    """All tracked files and their folders."""
    files = tracked()
    return {*files, *("/".join(file.split("/")[:end]) for file in files for end in range(1, file.count("/") + 1))}


@functools.cache
def elsewhere():
    return {word for words in ELSEWHERE.values() for word in words.split()}


def _python_words(name):
    """Names that a module defines, and the words of its strings, without docstrings."""
    tree = ast.parse(read(name))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value if " " not in node.value.strip() else ""  # the words of messages are no names
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
    for node in tree.body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])  # of a plain, or an annotated assignment
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _yaml_words(content):
    """Keys and values, without texts of several words."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield str(key)
            yield from _yaml_words(value)
    elif isinstance(content, list):
        for value in content:
            yield from _yaml_words(value)
    elif " " not in str(content):
        yield str(content).lower() if isinstance(content, bool) else str(content)


@functools.cache
def vocabulary():
    """Every name that code, rules and configuration know: keys, values, columns, registered names, files."""
    texts = [text for name in tracked("scripts/*.py", "performance/*.py") for text in _python_words(name)]
    texts += [
        text for name in tracked("config/*.yaml", "profiles/*.yaml") for text in _yaml_words(yaml.safe_load(read(name)))
    ]
    for name in tracked("Makefile", "Snakefile", "pyproject.toml", "rules/*.smk", "*.sh", "envs/*"):
        texts += [re.sub(r"(^|\s)#.*", "", line) for line in read(name).splitlines()]
    texts += [read(name).split("\n")[0] for name in tracked("config/*.csv", "performance/*.csv")]
    texts += [*fields.list_columns(), *fields.list_columns(fields.LOAD_FILES)]
    texts += [part for name in existing() for part in (name.split("/")[-1], name.split("/")[-1].split(".")[0])]
    texts += [*PARAMETERS, *TABLES, *_figures()]
    return {word for text in texts for word in (*WORD.findall(text), *FILE.findall(text))}


@functools.cache
def _column_patterns():
    return [re.compile(pattern.strip("^$")) for pattern in fields.list_column_patterns()]


@functools.cache
def _figures():
    return {name for file in description.list_figure_files() for name in yaml.safe_load(file.read_text())["figures"]}


@functools.cache
def _options():
    """The options of Snakemake, of all verbs and of all scripts."""
    options = {option for action in get_argument_parser()._actions for option in action.option_strings}
    for script in tracked("scripts/*.py", "performance/*.py"):
        options |= {f"--{name}" for name in re.findall(r'add_argument\(\s*f?"--([\w-]+)"', read(script))}
        if script.count("/") == 1 and "from study.commands." in read(script):
            module = importlib.import_module(script.removeprefix("scripts/").removesuffix(".py"))
            options |= set().union(*(_declared(each) for each in vars(module).values() if isinstance(each, Step)))
    return options.union(*map(_declared, VERBS))


def _declared(command):
    """The options of a command, and of those below it."""
    below = getattr(command, "commands", {}).values()
    return {option for each in (command, *below) for param in each.params for option in param.opts}


def is_known(word):
    """Whether a name exists. `_s` stands for an ending, `gpu_` for a beginning; results have their name's forms."""
    words = vocabulary()
    if word in words or word in elsewhere() or any(pattern.fullmatch(word) for pattern in _column_patterns()):
        return True
    if word.startswith("_"):
        return any(name.endswith(word) for name in words)
    if form := re.fullmatch(r"(\w+)\.(?:csv|md|tex|html|svg|pdf)", word):
        return form[1] in {*TABLES, *_figures(), *ON_REQUEST}
    if made := re.fullmatch(r"(?:published_(?:summit|theta)|published|ratio)_(\w*)", word):
        return not made[1] or made[1] in words
    if word.endswith("_"):
        return any(name.startswith(word) for name in words)
    return "_ci95" in word and word.replace("_ci95", "") in words


def unknown_path(path):
    """A path of the repository or of what the workflow writes: what of it does not exist."""
    path = path.rstrip("/").removeprefix("./").removeprefix("../")
    if path in elsewhere() or path.startswith(("/", "~", "$")):
        return []
    pattern = re.compile(
        "(?:.*/)?" + ".*".join(re.escape(part) for part in re.split(r"<\w+>|NAME|\*+|\.\.\.", path))
    )  # `machines/launchers.py` is short for scripts/study/machines/launchers.py
    if any(pattern.fullmatch(name) for name in existing()):
        return []
    first, *rest = path.split("/")
    if PLACEHOLDER.fullmatch(first):
        return []
    if first not in OUTPUTS or (first in ("tables", "figures") and len(rest) != 1):
        return [path]
    for kind, names in (("tables", TABLES), ("figures", _figures())):
        if (kind == first or kind in rest) and not path.endswith(kind):
            name = path.split(f"{kind}/")[1].split(".")[0]
            return [] if name in names or PLACEHOLDER.fullmatch(name) else [path]
    literal = [part for part in rest if not PLACEHOLDER.search(part) and part != "..." and "*" not in part]
    return [part for part in literal if not is_known(part)]


def unknown_pair(key, value):
    """`key: value` of a grid or a machine, or `key=value` of --config."""
    if not is_known(key):
        return [key]
    if PLACEHOLDER.search(f": {value}") or value == "" or key not in PARAMETERS:
        return [word for word in re.findall(r"[a-z][a-z0-9_]*", value) if "_" in word and not is_known(word)]
    parsed = yaml.safe_load(value)
    return (
        []
        if validation.VALIDATOR(schemas.build_study_schema()["$defs"]["grid"]["properties"][key]).is_valid(parsed)
        else [value]
    )


def unknown_in_command(line):
    """A command line of make, Snakemake or ours: targets, verbs, options, variables, files and settings that are wrong.

    Options may be those of any of our programs.
    """
    line = re.sub(r"\s#.*", "", line)
    words = [word.removeprefix(".venv/bin/") for word in line.split()]
    program, *rest = [word for word in words if not re.fullmatch(r"[A-Z_]+=\S+", word)] or [""]
    if program not in COMMANDS:
        return []
    wrong = [name for name in re.findall(r"(?:^|\s)([A-Z_]+)=", line) if not is_known(name)]
    if program == "make":
        targets = re.findall(r"^([\w-]+):", read("Makefile"), re.M)
        given = [word for word in words[words.index("make") :] if "=" in word]
        wrong += [word for word in given if not re.search(rf"\b{word.split('=')[0]}\b", read("Makefile"))]
        return [*dict.fromkeys(wrong + [word for word in rest if "=" not in word and word not in targets])]
    verbs = ("run", "plan", "completion", "VERB", *(each.name for each in VERBS))
    if program == "study" and rest and rest[0] not in verbs and not PLACEHOLDER.fullmatch(rest[0]):
        wrong.append(rest[0])
    for before, word in zip(["", *rest], rest, strict=False):
        if word.startswith("-"):
            wrong += [] if word in {*_options(), *elsewhere(), "-m", "-n"} else [word]
        elif before in ("--config", "--resources") and "=" in word:
            wrong += unknown_setting(*word.split("=", 1))
        elif "/" in word and before != "--profile":
            wrong += unknown_path(word.split("=")[-1])  # perhaps LABEL=FOLDER
    return wrong


def unknown_setting(key, value):
    """`study=NAME`, `machine=NAME` and the other keys of config/config.yaml."""
    folder = {"study": "studies", "machine": "machines"}.get(key)
    if folder is None or PLACEHOLDER.fullmatch(value) or value in elsewhere():
        return [] if is_known(key) else [key]
    return [] if f"config/{folder}/{value}.yaml" in existing() else [f"{key}={value}"]


def unknown_in_span(span):
    """What a code span names that does not exist."""
    span = " ".join(span.split())
    if span in elsewhere() or PLACEHOLDER.fullmatch(span) or not re.search(r"[A-Za-z]", span):
        return []
    if span.removeprefix(".venv/bin/").split()[0] in COMMANDS or re.match(r"[A-Z_]+=\S+ ", span):
        return unknown_in_command(span)
    if span.startswith("-"):
        return [word for word in span.split() if word.startswith("-") and word not in _options() | elsewhere()]
    if pair := re.fullmatch(r"(\w[\w.]*): ?(.*)", span):
        return unknown_pair(*pair.groups())
    if " " in span or "://" in span:
        words = [word for word in WORD.findall(span) if "_" in word.strip("_")]
        return [word for word in words if not is_known(word) and not PLACEHOLDER.fullmatch(word)]
    if pair := re.fullmatch(r"(\w+)=(\S+)", span):
        return unknown_setting(*pair.groups())
    if "/" in span:
        return unknown_path(span)
    is_part = "~" in span or "..." in span or PLACEHOLDER.search(span)  # of a run's name; several names at once
    if FILE.fullmatch(span) and not is_part:
        return [] if is_known(span) else [span]
    if is_part or WORD.fullmatch(span) or ("." in span and not span.startswith(".")):
        return [word for word in WORD.findall(re.sub(PLACEHOLDER, " ", span)) if not is_known(word)]
    return []


def wrong_in_block(language, text):
    """What a code block says that is wrong: commands, or YAML that its schema refuses."""
    if re.match(r"# (config|scripts)/\S+\n|# Snakefile\n", text):
        return []  # a file that the reader writes: tests/workflow/test_commands.py or test_module.py does, and plans it
    if language == "python":
        return []
    if language == "yaml":
        return _wrong_yaml(yaml.safe_load(text))
    joined = re.sub(r" *\\\n *", " ", text)
    wrong = [word for line in joined.splitlines() for word in unknown_in_command(line.strip())]
    return wrong + [name for name in FILE.findall(re.sub(r"\S*/\S+|\s#.*", "", joined)) if "*" not in name
                    and not is_known(name)]  # fmt: skip


def _wrong_yaml(content):
    try:
        if "runs" in content:
            validation.validate(content, schemas.build_study_schema(), "a study")
            expansion.expand_study("example", content, "a study")
        elif "references" in content:
            validation.validate(content, "references", "references")
        elif "sentences" in content:
            validation.validate(content, declaration.make_schema(), "a finding")
        elif "claims" in content:
            validation.validate(content, {**papers.schema(), "required": ["claims"]}, "claims")
        elif "minimise" in content:
            validation.validate(content, "goal", "a goal")
        else:
            base = machine.load(content.pop("base")) if "base" in content else {}
            base.pop("name", None)
            validation.validate({**base, **content}, machine.make_schema(), "a machine")
    except StudyError as error:
        return [str(error)]
    return []


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(BLOCK, "", text), re.M)
    return {re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-") for heading in headings}


def broken_links(text, page):
    """Relative links of a page that lead nowhere. page: its path in the repository."""
    for target in LINK.findall(re.sub(BLOCK, "", text)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (ROOT / page).parent / name if name else ROOT / page
        if not there.exists() or (
            anchor and anchor not in anchors(there.read_text(encoding="utf-8") if name else text)
        ):
            yield target


def problems(text, page):
    """Everything that a page names and that does not exist."""
    found = [f"link {target}" for target in broken_links(text, page)]
    for indent, language, block in BLOCK.findall(text):
        lines = re.sub(rf"^{indent}", "", block, flags=re.M)
        found += [f"code block: {wrong}" for wrong in wrong_in_block(language, lines)]
    for span in SPAN.findall(re.sub(BLOCK, "", text)):
        found += [f"`{span}`: {wrong}" for wrong in unknown_in_span(span)]
    return found
