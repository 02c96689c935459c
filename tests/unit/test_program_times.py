"""Numbers of a program that contradict each other, or the time that it ran, are doubted."""

import pytest

from study.records.program_times import explain_contradiction

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
