"""Ratios pair within blocks, and only where the blocks were run one after the other."""

import math

import pandas as pd
import pytest

from study.compare import estimates, failed_runs, likeness, result_sets
from study.records import overlap


def arm(seconds, starts, session="s"):
    """Runs of one experiment: a block each, with its time and when it started."""
    return pd.DataFrame(
        {
            "block": range(1, len(seconds) + 1),
            "status": "ok",
            "runtime_s": seconds,
            "started_wall_ns": starts,
            "session": session,
        }
    )


def test_a_drift_of_the_machine_cancels():
    """The machine becomes three times slower; the ratio stays 2, and its interval is as narrow as the pairs agree."""
    slow, fast = arm([20.0, 40.0, 60.0], [1, 4, 5]), arm([10.0, 20.0, 30.0], [2, 3, 6])
    found = estimates.estimate_ratio(slow, fast, "runtime_s")
    assert (found.blocks, found.pairing) == (3, estimates.PAIRED)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


def test_the_interval_is_student_s_on_the_logarithms():
    found = estimates.estimate_ratio(arm([2.0, 4.0], [1, 4]), arm([1.0, 1.0], [2, 3]), "runtime_s")
    half = 12.7062 * math.log(2) / 2  # t(0.975, 1 degree) x standard deviation / root of 2
    assert found.value == pytest.approx(math.sqrt(8))
    assert math.log(found.high / found.value) == pytest.approx(half, rel=1e-4)
    assert math.log(found.value / found.low) == pytest.approx(half, rel=1e-4)


def test_failures_of_all_arms_count_and_lost_jobs_apart():
    """Of three and two failed runs, one was lost with its host."""
    one, other = arm([1.0] * 4, range(4)), arm([1.0] * 3, range(3))
    one.loc[:2, ["status", "failure_kind"]] = ["failed", "oom"]
    other.loc[:1, ["status", "failure_kind"]] = ["failed", "host_lost"]
    other.loc[0, "failure_kind"] = "error"
    assert (failed_runs.count_failures(one, other), failed_runs.count_lost_runs(one, other)) == (4, 1)


def test_without_a_block_in_common_the_ratio_is_that_of_the_geometric_means():
    """6 of 4 and 9 s, 4 of 2 and 8 s."""
    one, other = arm([4.0, 9.0], [1, 2]), arm([2.0, 8.0], [3, 4]).assign(block=[3, 4])
    found = result_sets._estimate_by_blocks(one, other, "runtime_s")
    assert (found.value, found.blocks, found.pairing) == (pytest.approx(1.5), 2, estimates.UNPAIRED)
    assert math.isnan(found.low)


def test_an_arm_that_was_added_later_is_unpaired():
    found = estimates.estimate_ratio(arm([2.0, 2.0], [1, 2]), arm([1.0, 1.0], [3, 4]), "runtime_s")
    assert (found.value, found.pairing) == (pytest.approx(2), estimates.UNPAIRED)
    assert math.isnan(found.low)


def test_a_run_of_unknown_duration_ends_when_it_begins():
    """So it overlaps none that begins within the next second; the other one lasts a quarter of a second."""
    runs = pd.DataFrame({"started_wall_ns": [10**9, 15 * 10**8], "runtime_s": [math.nan, 0.25]})
    spans = overlap.compute_run_spans(runs)
    assert (spans["end"] - spans["begin"]).tolist() == [0, pytest.approx(0.25e9, rel=0.01)]
    assert not overlap.mark_overlapping_runs(runs).any()
    assert overlap.mark_overlapping_runs(runs.assign(runtime_s=0.6)).tolist() == [True, True]


@pytest.mark.parametrize(("session", "kind"), [("s", estimates.PAIRED), ("later", estimates.UNPAIRED)])
def test_a_single_block_is_paired_within_one_session(session, kind):
    found = estimates.estimate_ratio(arm([2.0], [1]), arm([1.0], [9], session), "runtime_s")
    assert (found.pairing, found.blocks) == (kind, 1)
    assert math.isnan(found.low)


def losses(values, **columns):
    return pd.DataFrame({"block": range(1, len(values) + 1), "status": "ok", "loss": values, **columns})


@pytest.mark.parametrize("column", ["packages", "data_checksum", "training_code"])
def test_losses_of_unlike_blocks_are_not_compared(column):
    """Block 3 of one arm is of another TensorFlow, data or code: 0.1 and 0.3 are left, with the mean 0.2."""
    one = losses([1.1, 1.3, 9.0], **{column: ["a", "a", "b"]})
    other = losses([1.0, 1.0, 1.0], **{column: "a"})
    assert estimates.estimate_difference(one, other, "loss").value == pytest.approx(0.2)
    assert list(estimates.estimate_difference(one, other, "loss").left_out) == [3]
    both = [each.assign(**{column: ["a", "a", "b"]}) for each in (one, other)]
    assert estimates.estimate_difference(*both, "loss").value == pytest.approx(8.4 / 3), "alike within each block"


def test_arms_that_may_differ_and_hosts_leave_no_loss_out():
    """PyTorch has other libraries than TensorFlow; a loss is the same on each host, and beside another run."""
    free = {"started_wall_ns": 2 * 10**6, "runtime_s": 10.0, "overlapped": True}
    one = losses([1.1, 1.3], framework="pytorch", packages="torch", hosts="n1", hardware="x", **free)
    other = losses([1.0, 1.0], framework="tensorflow", packages="tensorflow", hosts="n2", hardware="y", **free)
    assert estimates.estimate_difference(one, other, "loss").value == pytest.approx(0.2)
    elsewhere = one.assign(hosts="n2", framework="tensorflow", packages="tensorflow")
    assert math.isnan(estimates.estimate_difference(elsewhere, other, "loss").value), "other hardware in one host"


def test_a_block_of_two_sessions_is_left_out():
    """The second arm came weeks later, and with it one more repeat of both; without that, there is nothing else."""
    one, other = arm([2.0, 3.0], [1, 9], ["first", "later"]), arm([1.0, 1.0], [8, 10], "later")
    found = estimates.estimate_ratio(one, other, "runtime_s")
    assert (found.value, found.blocks, found.possible, found.pairing) == (pytest.approx(3), 1, 2, estimates.PAIRED)
    assert found.unlike == "1: its block was interrupted: runs of two starts of the workflow"
    alone = estimates.estimate_ratio(one.iloc[:1], other.iloc[:1], "runtime_s")
    assert (alone.value, alone.pairing, alone.unlike) == (pytest.approx(2), estimates.UNPAIRED, None)


def test_a_block_of_which_another_study_ran_some_runs_again_is_left_out():
    """One arm is shared with that study, and was disturbed there in block 2."""
    one = arm([2.0, 9.0, 2.0], [1, 9, 5], ["s", "later", "s"]).assign(attempt=[1, 2, 1])
    other = arm([1.0, 1.0, 1.0], [2, 4, 6]).assign(attempt=1)
    found = estimates.estimate_ratio(one, other, "runtime_s")
    assert (found.blocks, found.value, found.pairing) == (2, pytest.approx(2), estimates.PAIRED)
    assert found.unlike == "2: its block has runs of several sessions, since some were run again for another study"
    whole = estimates.estimate_ratio(
        one, arm([1.0, 3.0, 1.0], [2, 10, 6], ["s", "later", "s"]).assign(attempt=1), "runtime_s"
    )
    assert whole.blocks == 3, "all of the block ran again"


def test_failed_repeats_and_missing_blocks_are_left_out():
    one = arm([2.0, 2.0, 2.0], [1, 3, 5])
    one.loc[1, "status"] = "failed"
    found = estimates.estimate_ratio(one, arm([1.0, 1.0], [2, 4]), "runtime_s")
    assert found.blocks == 1
    assert estimates.estimate_ratio(one.iloc[:0], one, "runtime_s").pairing is None


class Watched(pd.DataFrame):
    """A table that notes which of its columns are asked for by name."""

    asked: set = set()

    @property
    def _constructor(self):
        return Watched

    def __getitem__(self, key):
        self.asked |= {key} if isinstance(key, str) else set(key) if isinstance(key, list) else set()
        return super().__getitem__(key)

    def __contains__(self, key):
        self.asked |= {key}
        return super().__contains__(key)


@pytest.mark.parametrize(
    ("low", "high", "side", "is_within"),
    [(0.8, 0.89, -1, False), (0.95, 1.04, 0, True), (0.95, 1.06, 0, False), (1.06, 1.2, 1, False)],
)
def test_an_interval_is_on_one_side_of_limits_or_within_them(low, high, side, is_within):
    estimate = estimates.Estimate(1.0, low, high)
    assert (estimate.find_side(0.9, 1.05), estimate.is_within(0.9, 1.05)) == (side, is_within)


def test_a_verdict_needs_half_of_the_possible_blocks():
    """Three of six blocks of both arms succeeded, or of seven."""
    for blocks, is_enough in ((6, True), (7, False)):
        one, other = (arm([2.0] * blocks, range(first, 2 * blocks, 2)) for first in (0, 1))
        one.loc[3:, "status"] = "failed"
        found = estimates.estimate_ratio(one, other, "runtime_s")
        assert (found.blocks, found.possible, found.has_enough_blocks) == (3, blocks, is_enough)


def in_jobs(jobs, starts, seconds, nodes=1, hosts="n"):
    """Three blocks at almost the same time, each on a host of its own, in these batch jobs."""
    runs = arm([seconds] * 3, [10**9 * start + 10**15 for start in starts])
    return runs.assign(batch_job=jobs, nodes=nodes, hosts=[f"{hosts}{block}" for block in runs["block"]])


@pytest.mark.parametrize(
    ("jobs", "starts", "nodes", "hosts", "pairing", "blocks"),
    [
        (["1", "2", "3"], [2, 3, 2], 1, "n", estimates.PAIRED, 3),
        (["1", "2", "4"], [2, 3, 2], 1, "n", estimates.PAIRED, 2),
        (["4", "5", "6"], [2, 3, 2], 1, "n", estimates.UNPAIRED, 3),
        (["4", "5", "6"], [0, 0, 0], 2, "m", estimates.OTHER_NODES, 3),
        (["1", "2", "3"], [1, 1, 1], 1, "m", estimates.UNPAIRED, 3),
    ],
    ids=["in turn in a job each", "one run was lost and made again", "a job each", "sizes", "side by side in a job"],
)
def test_blocks_that_overlap_are_paired_if_each_has_one_batch_job(jobs, starts, nodes, hosts, pairing, blocks):
    one, other = in_jobs(["1", "2", "3"], [0, 0, 0], 2.0), in_jobs(jobs, starts, 1.0, nodes, hosts)
    found = estimates.estimate_ratio(one, other, "runtime_s")
    assert (found.pairing, found.blocks, found.value) == (pairing, blocks, pytest.approx(2))
    assert math.isnan(found.low) is (pairing == estimates.UNPAIRED)
    if blocks == 2:
        assert list(found.left_out.values()) == [likeness.SEVERAL_JOBS]
