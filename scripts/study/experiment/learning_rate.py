"""The learning rate of a run: scaled by the number of ranks, with an optional warm-up, decay, or plateaus."""

from collections.abc import Iterable

from study.experiment.definition import RunDefinition

STEP_FACTOR = 0.1  # as Goyal et al. reduce it
PLATEAU_FACTOR = 0.1  # these two as in CANDLE's nt3_baseline_keras2.py
PLATEAU_IMPROVEMENT = 1e-4  # of the loss, at least; a smaller one is none


def scale_rate(run: RunDefinition, size: int) -> float:
    """A run's learning rate: that of one rank, times ``size`` under linear scaling (ICPP 2019, 2.3.2)."""
    rate = run.learning_rate
    return rate * size if run["learning_rate_scaling"] == "linear" else rate


def compute_rate(run: RunDefinition, size: int, step: int, steps_per_epoch: int) -> float:
    """The learning rate of training step ``step`` (from 0): the warm-up's, then the scaled rate x decay factor."""
    if step < (steps := count_warmup_steps(run, steps_per_epoch)):
        return compute_warmup_rate(run, size, step, steps)
    return scale_rate(run, size) * compute_decay_factor(run, step, steps_per_epoch)


def compute_warmup_rate(run: RunDefinition, size: int, step: int, steps: int) -> float:
    """The learning rate of step ``step`` (from 0) of a warm-up of ``steps`` steps.

    As in Goyal et al. (arXiv:1706.02677, section 2.2). Gradual: it grows linearly, step by step, from the rate of one
    rank to the scaled one, so that large scaled rates do not ruin the first updates. Constant: it is the rate of one
    rank. By epoch: that of one rank in the first epoch, and larger by an equal amount in each of the next, so that it
    reaches the scaled one after the warm-up (PRACE guide to deep learning, 2019, section 3.3).
    """
    first, last, kind = run.learning_rate, scale_rate(run, size), run.parameters.get("warmup")
    if kind == "constant":
        return first
    if kind == "by_epoch":
        epochs = run["warmup_epochs"]
        return first + (last - first) * (step * epochs // steps) / epochs
    return first + (last - first) * min(1.0, (step + 1) / steps)


def compute_decay_factor(run: RunDefinition, step: int, steps_per_epoch: int) -> float:
    """The factor of the scaled learning rate in training step ``step`` (from 0), after the warm-up.

    step: a tenth of the rate before, every ``decay_epochs`` epochs of the run, or after each of ``reduction_epochs``.
    linear: from 1 in the first step after the warm-up by equal amounts towards 0, which a further step would have.
    collapsed: linear, but in the last ``decay_epochs`` it falls to 0 quadratically (PRACE guide to deep learning, 2019,
    6.2.7).
    """
    decay, epoch_steps = run.parameters.get("learning_rate_decay", "none"), steps_per_epoch
    if decay == "none":
        return 1.0
    length = run["decay_epochs"] * epoch_steps
    if decay == "step":
        epochs = parse_epochs(run.parameters.get("reduction_epochs", "none"))
        return STEP_FACTOR ** (sum(step >= each * epoch_steps for each in epochs) if epochs else step // length)
    warmup = count_warmup_steps(run, epoch_steps)
    steps_done, steps = step - warmup, run.derived.epochs_per_rank * epoch_steps - warmup
    remaining_share = (steps - steps_done) / steps
    if decay == "collapsed" and steps - steps_done < length:
        return length / steps * ((steps - steps_done) / length) ** 2
    return remaining_share


def parse_epochs(text: str) -> list[int]:
    """The epochs of a value of ``reduction_epochs``: numbers joined by ``-``, or ``none``."""
    return [] if text == "none" else [int(epoch) for epoch in text.split("-")]


def find_collapse_epoch(run: RunDefinition) -> int | None:
    """The epoch, from 0, with which the collapse of ``learning_rate_decay: collapsed`` begins; None without one."""
    if run.parameters.get("learning_rate_decay") != "collapsed":
        return None
    return run.derived.epochs_per_rank - run["decay_epochs"]


def count_warmup_steps(run: RunDefinition, steps_per_epoch: int) -> int:
    """The number of steps of the warm-up."""
    return run["warmup_epochs"] * steps_per_epoch


def count_reductions(losses: Iterable[float], patience: int) -> int:
    """Number of reductions of the learning rate on plateaus after epochs with these validation losses.

    As Keras's ReduceLROnPlateau counts: one reduction after each ``patience`` epochs in a row without improvement.
    """
    best, waited, reductions = float("inf"), 0, 0
    for loss in losses:
        if loss < best - PLATEAU_IMPROVEMENT:
            best, waited = loss, 0
            continue
        waited += 1
        if waited == patience:
            waited, reductions = 0, reductions + 1
    return reductions
