"""Properties of the model of times at other rank counts."""

import numpy as np
import pytest

from study.prediction.scaling_model import DRAWS, fit_scaling, load_calibration, power_law, three_terms

RANKS = np.array([1.0, 2, 4, 8])
FARTHER = np.array([3.0, 16, 32, 64])
SHAPES = {
    "perfect": (100 / RANKS, True),
    "with an undivided part": (5 + 100 / RANKS, True),
    "superlinear": (100 / RANKS**1.15, True),
    "worsening": (np.array([100.0, 60, 45, 48]), True),
    "flat": (np.full(4, 3.0), False),
    "slower": (3 + 0.2 * np.log2(RANKS), False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [1e-90, 1e-3, 7.0, 1e90])
def test_times_in_another_unit_are_predicted_in_it(shape, factor):
    times, is_fixed = SHAPES[shape]
    one, other = (fit_scaling(RANKS, times * unit, is_fixed) for unit in (1, factor))
    assert np.array(other.predict_interval(FARTHER)) == pytest.approx(
        factor * np.array(one.predict_interval(FARTHER)), rel=1e-5
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_points_and_other_counts_that_are_asked_change_nothing(shape):
    times, is_fixed = SHAPES[shape]
    model, other = fit_scaling(RANKS, times, is_fixed), fit_scaling(RANKS[::-1], times[::-1], is_fixed)
    assert np.array(model.predict_interval(FARTHER)) == pytest.approx(np.array(other.predict_interval(FARTHER)))
    assert model.draw(FARTHER)[1] == pytest.approx(model.draw(np.array([16.0]))[0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", [2, 3, 4])
def test_intervals_contain_the_median_and_widen_with_the_distance(shape, number):
    times, is_fixed = SHAPES[shape]
    model = fit_scaling(RANKS[:number], times[:number], is_fixed)
    low, median, high = model.predict_interval(model.largest * np.array([1.0, 2, 4, 8, 1024]))
    assert (low < median).all() and (median < high).all()
    assert (np.diff(high / low) > 0).all()


@pytest.mark.parametrize(("shape", "exact"), [("perfect", 100 / FARTHER), ("flat", np.full(4, 3.0))])
def test_perfect_scaling_goes_on_but_for_the_least_growth(shape, exact):
    times, is_fixed = SHAPES[shape]
    low, median, high = fit_scaling(RANKS, times, is_fixed).predict_interval(FARTHER)
    assert median == pytest.approx(exact, rel=0.05)
    assert ((low <= exact) & (exact <= high)).all()


def test_what_worsens_is_not_predicted_to_recover_and_what_is_superlinear_not_to_explode():
    worse = fit_scaling(RANKS, *SHAPES["worsening"]).predict_median(np.array([16.0]))[0]
    assert worse > 100 / 16 * 48 / 12.5  # no more efficient than on 8
    superlinear = fit_scaling(RANKS, *SHAPES["superlinear"]).predict_median(FARTHER[1:])
    assert (superlinear > 0.9 * SHAPES["superlinear"][0][-1] * 8 / FARTHER[1:]).all()


def test_an_outlier_widens_the_interval():
    times = 5 + 100 / RANKS
    disturbed = times * np.array([1, 1, 1.5, 1])
    width = [np.diff(np.log(fit_scaling(RANKS, each, True).predict_interval(FARTHER)), axis=0).sum(axis=0)
             for each in (times, disturbed)]  # fmt: skip
    assert (width[1] > width[0]).all()
    assert fit_scaling(np.array([1.0, 2, 4, 8, 16]), np.array([100.0, 53, 50, 17, 10]), True).find_misfit()[1] == 4
    assert fit_scaling(RANKS, times, True).find_misfit() == (0.0, 0)
    apart = RANKS, times * np.array([1, 1, 1.15, 1]), True
    assert fit_scaling(*apart).find_misfit()[1] == 4
    assert fit_scaling(*apart, np.full(4, 0.3**2), np.ones(4), 0.3).find_misfit() == (0.0, 0), "runs scatter by 30 %"


def test_more_repeats_never_widen_and_a_badly_measured_count_weighs_less():
    times = np.array([100.0, 53, 29, 17])
    widths = []
    for repeats in (1, 2, 8, 100):
        for noise in (0.3, 0.1, 0.01):
            model = fit_scaling(RANKS, times, True, np.full(4, noise**2), np.full(4, repeats), noise)
            low, _, high = model.predict_interval(FARTHER)
            widths.append(high / low)
    by_noise = np.array(widths).reshape(4, 3, -1)
    assert (np.diff(by_noise, axis=0) <= 1e-9).all() and (np.diff(by_noise, axis=1) <= 1e-9).all()
    disturbed, variances = times * np.array([1, 1, 2, 1]), np.array([0.0, 0, 1, 0])
    calm = fit_scaling(RANKS, disturbed, True, variances).predict_median(FARTHER[1:])
    assert calm == pytest.approx(
        fit_scaling(RANKS[[0, 1, 3]], times[[0, 1, 3]], True).predict_median(FARTHER[1:]), 0.05
    )


def test_draws_have_the_quantiles_of_the_interval_and_grow_together():
    model = fit_scaling(RANKS, *SHAPES["with an undivided part"])
    draws = model.draw(FARTHER)
    assert draws.shape == (4, DRAWS)
    assert np.quantile(draws, [0.05, 0.5, 0.95], axis=1) == pytest.approx(
        np.array(model.predict_interval(FARTHER)), rel=0.01
    )
    near, far = (np.corrcoef(np.log(draws[[1, place]]))[0, 1] for place in (2, 3))
    assert 0.5 < far < near < 0.9
    means = np.log(model.draw(FARTHER, of_mean=True))
    assert (means.std(axis=1) < np.log(draws).std(axis=1)).all()


def test_simple_fits_find_what_they_assume():
    assert power_law(RANKS, 9 * RANKS**-0.7, FARTHER, True) == pytest.approx(9 * FARTHER**-0.7)
    assert power_law(RANKS, 2 + np.log(RANKS), FARTHER, False) == pytest.approx(2 + np.log(FARTHER))
    times = 2 + 30 / RANKS + 0.5 * np.log(RANKS)
    assert three_terms(RANKS, times, FARTHER, True) == pytest.approx(2 + 30 / FARTHER + 0.5 * np.log(FARTHER))


def test_the_calibration_has_a_median_of_0_and_ascending_quantiles():
    quantiles = load_calibration()["quantiles"]
    assert quantiles["scores"][quantiles["shares"].index(0.5)] == 0
    assert sorted(quantiles["scores"]) == quantiles["scores"]


def test_what_the_fit_leaves_over_at_the_last_count_is_halved_with_each_doubling_beyond():
    ranks, beyond = np.array([1.0, 2, 4, 8]), np.array([8.0, 16, 32])
    model = fit_scaling(ranks, (1 + 7 / ranks) * [1, 1, 1, 1.03], True)
    over = np.log(model.predict_median(beyond) / model.fit_median(beyond))
    assert over[0] > 0.01 and over == pytest.approx(over[0] / np.array([1, 2, 4]))
