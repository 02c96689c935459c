"""Part 5: a small paired study in interleaved blocks: mixed precision, torch.compile, batch size, a power limit.

The network is a perceptron of this module, so that it also runs where the library of runs does not.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from study.core.errors import StudyError
from study.core.statistics import ERROR_PER_SIDE, sample_of_logarithms
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.limit_checks import REFUSALS, power_limit
from study.launch.gpu_check.results import NotPossible, write_csv
from study.launch.gpu_check.torch_work import need

BLOCKS = 6
RUN_S = 3.0  # of each arm in each block, at the default of --minutes
WIDTH, LAYERS, BATCH, LARGER = 4096, 4, 256, 4
BASE = "float32, batch 256"
STEPS_AT_ONCE = 5  # between two looks at the clock
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # 97.5 % quantile, by number of blocks
COLUMNS = ("block", "position", "arm", "time_s", "samples", "samples_per_s", "energy_j", "joule_per_sample")
Step = Callable[[], None]
Rows = list[dict[str, Any]]


def check(context: Context) -> None:
    """Prepare the arms, run the blocks, and compare each arm with the first."""
    uuid = context.first()
    arms = _arms(context, uuid)
    runs: Rows = []
    for block in range(BLOCKS):
        context.say(f"study: block {block + 1} of {BLOCKS}")
        for position, name in enumerate(order(list(arms), block)):
            with _set(context, uuid, name, arms):
                if name in arms:
                    runs.append({"block": block, "position": position, "arm": name, **_run(context, uuid, *arms[name])})
        write_csv(context.output / "samples_study.csv", COLUMNS, runs)
    for name in arms:
        if name != BASE:
            _compare(context, uuid, name, runs)


def order(names: list[str], block: int) -> list[str]:
    """The arms in the order of a block: to and fro, and each time another one begins, so that drift favours none."""
    first = block // 2 % len(names)
    turned = names[first:] + names[:first]
    return turned[::-1] if block % 2 else turned


def _arms(context: Context, uuid: str) -> dict[str, tuple[Step, int, float]]:
    """{arm: (step, batch size, power limit in W or 0)}, of those that are possible, each warmed up."""
    kinds: dict[str, dict[str, Any]] = {
        BASE: {},
        "mixed precision (bfloat16)": {"is_mixed": True},
        "torch.compile": {"is_compiled": True},
        f"batch {BATCH * LARGER}": {"batch": BATCH * LARGER},
    }
    found: dict[str, tuple[Step, int, float]] = {}
    for name, options in kinds.items():
        try:
            step = step_of(context.kind, **options)
            for _ in range(STEPS_AT_ONCE):
                step()
            found[name] = step, options.get("batch", BATCH), 0.0
        except Exception as error:  # such as torch.compile's, where there is no compiler
            if name == BASE:
                raise
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            context.rows.not_possible(f"{name}: ratio of throughput", text, device=uuid)
    try:
        limit = power_limit(context, uuid)
        found[f"power limit {limit:g} W"] = found[BASE][0], BATCH, limit
    except NotPossible as why:
        context.rows.not_possible("power limit: ratio of throughput", why, device=uuid)
    return found


@contextlib.contextmanager
def _set(context: Context, uuid: str, name: str, arms: dict[str, tuple[Step, int, float]]) -> Iterator[None]:
    """Hold the arm's power limit; an arm whose limit is refused is taken out of ``arms``."""
    with contextlib.ExitStack() as held:
        if limit := arms[name][2]:
            try:
                held.enter_context(context.limited(uuid, {"gpu_power_limit_w": limit}))
            except StudyError as refused:
                del arms[name]
                check_name, text = f"{name}: ratio of throughput", str(refused)
                if any(words in text for words in REFUSALS):
                    context.rows.not_possible(check_name, text, device=uuid)
                else:
                    context.rows.judge(check_name, text, device=uuid)
        yield


def step_of(kind: str, is_mixed: bool = False, is_compiled: bool = False, batch: int = BATCH) -> Step:
    """A training step of the perceptron, which ends when the GPU has done it."""
    module = need(kind)
    module.manual_seed(1)
    layers = [each for _ in range(LAYERS) for each in (module.nn.Linear(WIDTH, WIDTH), module.nn.ReLU())]
    network = module.nn.Sequential(*layers).to(kind)
    optimizer = module.optim.SGD(network.parameters(), lr=1e-3)
    called = module.compile(network) if is_compiled else network
    x = module.randn(batch, WIDTH, device=kind)

    def step() -> None:
        with module.autocast(kind, module.bfloat16, enabled=is_mixed):
            loss = called(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if kind == "cuda":
            module.cuda.synchronize()

    return step


def _run(context: Context, uuid: str, step: Step, batch: int, _: float) -> dict[str, Any]:
    """Steps for `RUN_S`; energy by the counter, None without one."""
    device, seconds = context.device(uuid), RUN_S * context.share
    for _number in range(STEPS_AT_ONCE):
        step()
    begin, first, steps = context.clock.now(), device.read().energy_j, 0
    while context.clock.now() < begin + seconds:
        for _number in range(STEPS_AT_ONCE):
            step()
        steps += STEPS_AT_ONCE
    took, last = context.clock.now() - begin, device.read().energy_j
    samples = steps * batch
    energy = None if first is None or last is None or last <= first else last - first
    return {"time_s": took, "samples": samples, "samples_per_s": samples / took, "energy_j": energy,
            "joule_per_sample": None if energy is None else energy / samples}  # fmt: skip


def _compare(context: Context, uuid: str, name: str, runs: Rows) -> None:
    """The ratio of an arm to the first one, paired within blocks, with its 95 % interval."""
    for what, column in (("throughput", "samples_per_s"), ("energy per sample", "joule_per_sample")):
        about = {"device": uuid, "unit": "x", "expected": f"of {BASE}; told, not judged"}
        check_name = f"{name}: ratio of {what}"
        one, other = ({row["block"]: row[column] for row in runs if row["arm"] == arm} for arm in (name, BASE))
        pairs = [(one[block], other[block]) for block in sorted(one) if one[block] and other.get(block)]
        if len(pairs) < min(STUDENT):
            context.rows.not_possible(check_name, f"{len(pairs)} blocks have both values", **about)
            continue
        middle, low, high = ratio(np.array(pairs))
        problem = None if math.isfinite(low) and math.isfinite(high) else "there is no interval"
        context.rows.judge(check_name, problem, f"{middle:.4g} (95 % {low:.4g} to {high:.4g})", **about)


def ratio(pairs: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean of the pairs' ratios, and its 95 % interval: the project's, or a plain one without SciPy."""
    sample = sample_of_logarithms(np.log(pairs[:, 0] / pairs[:, 1]))
    try:
        return (sample.middle, *sample.interval(ERROR_PER_SIDE))
    except ImportError:
        half = STUDENT[len(pairs)] * sample.deviation / math.sqrt(len(pairs))
        return sample.middle, math.exp(sample.mean - half), math.exp(sample.mean + half)
