"""Three rounds of ``make chaos``: faults strike a small study at random moments; then all that is there is right."""

import pytest
import rounds

SEEDS = (12, 18, 13)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return rounds.Reference.make(tmp_path_factory.mktemp("reference"))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_of_chaos(seed, reference, tmp_path):
    done = rounds.play(seed, reference, tmp_path)
    assert not done.wrong, f"make chaos SEED={seed} ROUNDS=1 repeats it; struck: {done.told}"


def test_the_seed_fixes_the_strikes():
    plans = [rounds.Plan.of(seed) for seed in range(200)]
    assert plans == [rounds.Plan.of(seed) for seed in range(200)]
    assert {blow.strike for plan in plans for blow in plan.blows} == set(rounds.STRIKES)
    assert max(len(plan.blows) for plan in plans) == rounds.MOST_STRIKES
