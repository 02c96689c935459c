"""Three rounds of ``make chaos``: faults strike a small study at random moments; then all that is there is right."""

import chaos
import pytest

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return chaos.Reference.make(tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_of_chaos(seed, reference, tmp_path):
    done = chaos.play(seed, reference, tmp_path)
    assert not done.wrong, f"make chaos SEED={seed} ROUNDS=1 repeats it; struck: {done.told}"


def test_the_seed_fixes_the_strikes():
    plans = [chaos.Plan.of(seed) for seed in range(200)]
    assert plans == [chaos.Plan.of(seed) for seed in range(200)]
    assert {blow.strike for plan in plans for blow in plan.blows} == set(chaos.STRIKES)
    assert max(len(plan.blows) for plan in plans) == chaos.MOST_STRIKES
