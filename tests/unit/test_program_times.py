"""Numbers of a program that contradict each other, or the time that it ran, are doubted."""

import pytest

from study.records.program_times import explain_contradiction, explain_growth

RATE, EPOCH, STEP = "throughput_samples_per_s", "time_per_epoch_s", "time_per_step_s"


def explain(ran_s=20.0, steps=10, has_epochs=False, epochs=None, **training):
    """Of 2 epochs of 1000 samples on 2 ranks, with 10 steps each."""
    nothing = dict.fromkeys((RATE, EPOCH, STEP, "time_per_epoch_steady_s", "epoch_steps_s"))
    record = {
        "phases": {"program": {"slowest_s": ran_s}},
        "runtime_s": ran_s + 1,
        "training": {**nothing, **training},
        "workload": {"samples_per_rank": 500},
        "parameters": {"gpus": 2},
        "derived": {"epochs_per_rank": 2},
    }
    return explain_contradiction(record, {"has_epochs": has_epochs, "epochs": epochs, "steps_per_epoch": steps})


@pytest.mark.parametrize(
    "training",
    [{RATE: 200.0}, {EPOCH: 8.0}, {STEP: 0.9}, {RATE: 200.0, EPOCH: 5.5, STEP: 0.5}, {RATE: 110.0, EPOCH: 10.0}, {}],
)
def test_numbers_that_fit_are_not_doubted(training):
    assert explain(**training) is None


@pytest.mark.parametrize(
    ("training", "why"),
    [
        ({RATE: 50.0}, "throughput_samples_per_s makes the training 40 s long, and the program ran for 20 s"),
        ({STEP: 52.33}, "time_per_step_s makes the training 1.05e+03 s long, and the program ran for 20 s"),  # ms
        ({EPOCH: 127.0}, "time_per_epoch_s makes the training 254 s long"),
        ({RATE: 100.0, EPOCH: 5.0}, "throughput_samples_per_s makes the training 20 s long, and time_per_epoch_s 10 s"),
        ({RATE: 1000.0, STEP: 0.5}, "time_per_step_s makes the training 10 s long, and throughput_samples_per_s 2 s"),
        ({RATE: 1e6, "ran_s": 200.0}, "makes the training 0.002 s long, of 200 s that the program ran"),
        ({EPOCH: 0.0, "epoch_steps_s": 0.0, "has_epochs": True, "epochs": 2}, "an epoch took 0 s by its events"),
        ({EPOCH: 5.0, "epoch_steps_s": 0.0, "has_epochs": True, "epochs": 2}, "an epoch took 0 s by its events"),
        ({EPOCH: 0.1, "epoch_steps_s": 0.1, "has_epochs": True, "ran_s": 99.0}, "0.2 s long, of 99 s that the program"),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_named(training, why):
    assert why in explain(**training)


def test_a_short_training_of_a_short_program_is_not_doubted():
    assert explain(ran_s=30.0, **{RATE: 1e6}) is None, "it starts for half a minute"


def explain_on_two(rate, program_s, base_s=20.0, scaling="strong", gpus=2, batch_size=32, **changes):
    """Why the throughput of a run on two ranks is doubted, beside 100 samples/s on one rank."""
    row = {"status": "ok", "unproven": None, "scaling": scaling, "sharding": "none", "batch_size_per_rank": 32}
    base = [row | {"gpus": 1, RATE: value, "program_s": base_s} for value in (99.0, 100.0, 100.0, 900.0)]
    other = {"gpus": gpus, RATE: rate, "program_s": program_s, "batch_size_per_rank": batch_size}
    failed = row | {"status": "failed", RATE: None, "gpus": None}
    reasons = explain_growth([failed, row | other | changes, *base, row | other | {"benchmark": "another"}])
    assert set(reasons) <= {1}, "of another benchmark there is no run on fewer ranks"
    return reasons.get(1)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ({"rate": 1800.0, "program_s": 11.0}, "is 18.00 times that on 1 rank, more than 2 times the ranks can make it"),
        ({"rate": 931.0, "program_s": 11.0, "gpus": 8}, "is 9.31 times that on 1 rank, more than 8 times the ranks"),
        ({"rate": 240.0, "program_s": 20.0, "scaling": "weak"}, "is 2.40 times that on 1 rank, more than 2 times"),
        ({"rate": 100.0, "program_s": 11.0}, "but the program gets the work done 1.82 times as fast: it may be of one"),
        ({"rate": 95.0, "program_s": 22.0, "scaling": "weak"}, "the work done 1.82 times as fast: it may be of one"),
        ({"rate": 195.0, "program_s": 11.0}, None),
        ({"rate": 229.0, "program_s": 11.0}, None),
        ({"rate": 100.0, "program_s": 19.0}, None),  # two ranks that gain nothing
        ({"rate": 100.0, "program_s": 6.0}, None),  # what is wrong is the time: `explain_superlinear`
        ({"rate": 400.0, "program_s": 11.0, "batch_size": 64}, None),  # a larger batch may be faster by itself
        ({"rate": 1800.0, "program_s": 11.0, "unproven": "no event"}, None),
        ({"rate": 1800.0, "program_s": None}, None),  # not a command
    ],
)  # fmt: skip
def test_throughputs_that_their_ranks_cannot_make_are_doubted(run, why):
    reason = explain_on_two(**run)
    assert (why in reason) if why else reason is None
