"""The order of samples and the seeds of random changes, which no version of a library and no framework may change."""

import numpy as np
import pytest

from study.backends.tensorflow.seeds import draw_seeds_by_rank
from study.data import order
from study.data.images import augmentation
from study.data.order import EpochOrder, Purpose


def philox(key, counter):
    """One block of Philox-4x64-10 as its authors define it (Salmon et al., SC 2011, section 3.3), in whole numbers."""
    mask, words, keys = 2**64 - 1, list(counter), list(key)
    for _ in range(10):
        high, low = divmod(words[0] * 0xD2E7470EE14C6C93, 2**64)
        other_high, other_low = divmod(words[2] * 0xCA5A826395121157, 2**64)
        words = [other_high ^ words[1] ^ keys[0], other_low, high ^ words[3] ^ keys[1], low]
        keys = [(keys[0] + 0x9E3779B97F4A7C15) & mask, (keys[1] + 0xBB67AE8584CAA73B) & mask]
    return words


def test_words_are_those_of_the_published_generator():
    """The counter's first word counts blocks from 1, its third is the epoch and its fourth the purpose."""
    wanted = [*philox([7, 0], [1, 0, 5, 2]), *philox([7, 0], [2, 0, 5, 2])]
    assert order.draw_words(7, Purpose.CHANGES, 5, 8).tolist() == wanted


def test_each_seed_purpose_and_epoch_has_words_of_its_own():
    each = [order.draw_words(seed, purpose, epoch, 4) for seed in (1, 2) for purpose in Purpose for epoch in (0, 1)]
    assert len(np.unique(each)) == 4 * len(each)
    assert [purpose.value for purpose in Purpose] == [0, 1, 2, 3, 4, 5], "a released value stays"


@pytest.mark.parametrize(
    ("buffer", "epoch", "wanted"),
    [
        (0, 0, [8, 3, 11, 5, 2, 10, 0, 9, 4, 1, 7, 6]),
        (0, 3, [7, 10, 5, 8, 3, 1, 9, 0, 4, 11, 6, 2]),
        (4, 0, [2, 0, 4, 6, 5, 1, 7, 9, 11, 8, 3, 10]),
    ],
)
def test_the_order_of_a_seed_and_an_epoch_is_fixed(buffer, epoch, wanted):
    assert EpochOrder(100_003, epoch, buffer).positions(12).tolist() == wanted


def test_the_order_is_uniform():
    """Each of 10 samples is at each place in a tenth of 4,000 epochs."""
    made = EpochOrder(1)
    counts = np.zeros((10, 10))
    for epoch in range(4000):
        made.set(epoch)
        counts[np.arange(10), made.positions(10)] += 1
    assert (abs(counts - 400) < 5 * np.sqrt(360)).all()


def test_light_changes_are_of_the_words_bits():
    words = np.array([[0, 0], [(3 << 62) | (1 << 31), 1 << 63], [2**64 - 1, 2**64 - 1]], np.uint64)
    assert augmentation.draw_light_changes(words, 3, True).tolist() == [[0, 0, 0], [3, 2, 1], [3, 3, 1]]
    assert augmentation.draw_light_changes(words, 0, False).tolist() == [[0, 0, 0]] * 3
    assert augmentation.make_seeds(words)[2].tolist() == [-1, -1, augmentation.WHOLE]


def test_ranks_of_members_whose_seeds_follow_one_another_drop_other_units():
    """Rank 1 of the member with seed 7, and rank 0 of the one with seed 8: their sums are equal."""
    assert order.derive_rank_seed(7, 0) == 7
    assert order.derive_rank_seed(7, 3) == philox([7, 0], [1, 0, 3, 5])[0]
    own = [order.derive_rank_seed(7 + member, rank) for member in range(8) for rank in range(8)]
    assert len(set(own)) == 64
    of_members = np.stack([draw_seeds_by_rank(7 + member, 4) for member in range(4)])
    assert len(np.unique(of_members)) == 4 * 4 * order.LAYERS
    assert of_members[0, 0].tolist() == order.derive_dropout_seeds(7).tolist(), "a run's first rank"
