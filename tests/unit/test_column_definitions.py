"""What declared columns say: each time, rate and mean of epochs says which epochs it covers."""

import re

import pytest

from study.core import fields, units

COLUMNS = {name: each.text for name, each in {**fields.list_columns(), **fields.list_column_patterns()}.items()}
# {names: why they cover no epochs}
OF_NO_EPOCHS = {
    r"(runtime|other|stood_still)_s|started_(wall|monotonic)_ns|clock_uncertainty_s": "of run or clock",
    r"(startup|load|preprocess|broadcast|evaluate)(_fastest)?_s|stage_s": "of a phase before or after training",
    r"(launch|training)_to_target_s": "until an epoch, which is told",
    r"checkpoint_(write|restore)_s": "of one checkpoint",
    r"(peak|compute)_samples_per_s": "of batches, in runs without epochs",
    r"(energy|whole_run)_window_s|energy_delay_product_js|power_gap_s": "of a window of energy, which is told",
    "whole_run_outside_s": "of the run",
    r"timeline_broadcast_\w+_s": "of the broadcast before training",
    r"profile_\w+_s": "of a whole profile",
    r"\^busbw_.*": "of messages that are no training",
}
OF_EPOCHS = re.compile(r"all epochs|epochs after the first|first epoch")


def told_of(name):
    """A column's description with those on which it is based: of a column that it names, or of the one before it."""
    names, text = list(COLUMNS), COLUMNS[name]
    if text.startswith(("the same", "of that")) or ": the same" in text:
        return f"{text} {told_of(names[names.index(name) - 1])}"
    return " ".join(
        [text, *(told_of(each) for each in re.findall(r"`(\w+)`", text) if each in COLUMNS and each != name)]
    )


def is_of_epochs(name):
    unit = units.find_unit(name) or ""
    return bool(re.fullmatch(r"s|\w+/s", unit)) or "per_step" in name or "per_epoch" in name or name == "cpu_busy"


CHECKED = [
    name for name in COLUMNS if is_of_epochs(name) and not any(re.fullmatch(names, name) for names in OF_NO_EPOCHS)
]


@pytest.mark.parametrize("name", [name for name in CHECKED if name != "steps_per_epoch"])
def test_a_time_or_rate_says_which_epochs_it_covers(name):
    assert OF_EPOCHS.search(told_of(name)), COLUMNS[name]


def test_columns_of_no_epochs_exist():
    assert [each for each in OF_NO_EPOCHS if not any(re.fullmatch(each, name) for name in COLUMNS)] == []
