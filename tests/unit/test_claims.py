"""Claims of papers: what claims.yaml declares, its formulas, and messages for what is wrong in it."""

import math

import pandas as pd
import pytest
import yaml

from study.core import statistics
from study.core.errors import StudyError
from study.report import formulas
from study.report.papers import claim_estimates, claims, declaration, published
from study.report.papers.claim_arms import Arms

TABLE = {"title": "t", "look_for": "l", "needs": "n", "caption": "c", "runs": {"give": "timings"}}
CLAIM = {"quantity": "speed", "section": "1"}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make the paper `new` from the content of its claims.yaml and its text.csv, in a folder of papers of its own."""

    def make(claims, text="measure,value,low,high\nspeed,3,1,5\n", **content):
        folder = tmp_path / "papers" / "new"
        folder.mkdir(parents=True)
        (folder / "new_text.csv").write_text(text)
        (folder / "claims.yaml").write_text(yaml.safe_dump({"table": TABLE, "claims": claims, **content}))
        for module in (declaration, published, published.read_published.__wrapped__):
            monkeypatch.setitem(getattr(module, "__globals__", vars(module)), "CONFIG", tmp_path)
        return declaration.load_paper.__wrapped__("new")

    yield make
    published.read_published.cache_clear()


def test_every_paper_of_claims_is_found_by_its_file_alone(made):
    made([CLAIM])
    assert declaration.papers() == ["new"]


@pytest.mark.parametrize("paper", declaration.papers())
def test_every_number_that_a_paper_names_can_be_computed(paper):
    declared = declaration.load_paper(paper)
    for claim in declared.claims:
        value = declared.published.range(claim.published, benchmark=claim.benchmark)
        assert claim.published is None or not all(map(math.isnan, value)), claim.quantity


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("text('speed')", (3, 1, 5)),
        ("2 * text('speed')", (6, math.nan, math.nan)),
        ("high(text('speed')) - low(text('speed'))", (4, math.nan, math.nan)),
        ("around(twice, 1)", (6, 5, 7)),
        ("-(1 + 2) ** 2 / 4", (-2.25, math.nan, math.nan)),
    ],
)
def test_formulas(made, formula, expected):
    declared = made([CLAIM | {"published": formula}], numbers={"twice": "2 * text('speed')"})
    assert declared.published.range(formula) == pytest.approx(expected, nan_ok=True)


def test_a_number_of_the_text_is_of_the_claim_s_benchmark(made):
    declared = made([CLAIM], text="measure,benchmark,value\nspeed,nt3,1\nspeed,,2\nother,,3\n")
    number = declared.published.number
    assert number("text('speed')", benchmark="nt3") == 1
    assert number("text('speed', benchmark=None)", benchmark="nt3") == 2
    assert number("text('other')") == 3
    with pytest.raises(StudyError, match=r"new_text.csv: .*'speed'.*: 2 rows instead of one"):
        number("text('speed')")


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"published": "speed +"}, r"claims\[0\].published \(speed\): expected a formula of numbers, texts"),
        ({"published": "[1, 2]"}, r"claims\[0\].published \(speed\): expected a formula"),
        ({"published": "().__class__"}, r"claims\[0\].published \(speed\): expected a formula"),
        ({"published": "tiwce"}, r"claims\[0\].published.* uses 'tiwce'; expected a name: .*twice"),
        ({"published": "open('x')"}, r"claims\[0\].published.* uses 'open'; expected a function: abs, .*text"),
        ({"runs": {"form": "ratoi", "measure": "runtime_s"}}, r"claims\[0\].runs.form.*ratio"),
        ({"runs": {"form": "ratio", "measure": "runtime_s"}}, r"claims\[0\].runs \(speed\): form ratio needs one"),
        ({"runs": {"form": "value", "measure": "x", "one": {"gpus": 1}, "other": {"gpus": 2}}}, "remove one and other"),
        ({"runs": {"form": "ratio", "measure": "x", "one": {"gpus": 1}}}, r"claims\[0\].runs.*other"),
        ({"qantity": "x"}, r"claims\[0\].*qantity.*quantity"),
    ],
)
def test_what_is_wrong_in_claims_names_file_and_key(made, claim, words):
    with pytest.raises(StudyError, match=rf"claims.yaml(: |, ).*{words}") as error:
        made([CLAIM | claim], numbers={"twice": "2 * text('speed')"})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("one", "other", "right"),
    [
        (238546.95, 159.35 * 1497, 0),  # by hand 238546.95; of floats, 3e-11 is left
        (0.3, 0.1 + 0.2, 0), (1, 1, 0), (0, 0, 0), (-2.5, 2.5, -5), (1 + 1e-9, 1, 1e-9), (1e-300, 0, 1e-300),
        (math.inf, 1, math.inf), (math.nan, 1, math.nan),
    ],
)  # fmt: skip
def test_a_difference_that_is_only_rounding_is_0(one, other, right):
    expected = pytest.approx(right, rel=1e-6, abs=0, nan_ok=True)
    assert statistics.subtract(one, other) == expected
    columns = pd.Series([one, 5.0]), pd.Series([other, 3.0])
    assert statistics.subtract(*columns).tolist() == [expected, 2.0]
    assert formulas.evaluate_formula("a - b", {"a": one, "b": other}.__getitem__, {}) == expected


def test_a_formula_runs_no_code():
    for text in ("lambda: 1", "text.__class__", "x if y else z", "'a'.join('b')", "text(*x)", "1 < 2"):
        with pytest.raises(ValueError, match="expected a formula"):
            formulas.parse_formula(text)


MEASURES = ("runtime_s", "node_power_w", "accuracy")


def blocks_of(values, code="a"):
    """Runs by block; the third one is of other code. One run after the other, an arm's directly after the other's."""
    at = {"status": "ok", "machine": "m", "session": "s", "gpus": 1, "power_source": "measured"}
    return pd.DataFrame([
        {**at, "block": block, "record": f"{code}{block}", "training_code": code if block == 3 else "a",
         "started_wall_ns": 10 * block + (code != "a"), **dict.fromkeys(MEASURES, value)}
        for block, value in enumerate(values, 1)
    ])  # fmt: skip


def answer(form, measure, one, other):
    """The answer of a claim of two arms."""
    claim = declaration.Claim("q", "1", form=form, measure=measure, one={"gpus": 1}, other={"gpus": 2})
    return claim_estimates._estimate_arms(claim, Arms(one, other))


def test_a_difference_is_of_the_blocks_that_can_be_compared():
    """20 and 22 of two blocks; the third has two versions of the code. What follows from the seeds is of any hosts."""
    one, other = blocks_of([30.0, 32.0, 90.0]), blocks_of([10.0, 10.0, 10.0], code="b")
    found = answer("difference", "node_power_w", one, other).estimate
    assert (found.value, found.blocks, found.pairing) == (21, 2, "paired")
    assert answer("difference", "accuracy", one, other).estimate.value == 21
    crowded = [each.assign(training_code="a", overlapped=True) for each in (one, other)]
    assert answer("difference", "accuracy", *crowded).estimate.value == pytest.approx((20 + 22 + 80) / 3)
    assert not answer("difference", "node_power_w", *crowded).estimate.blocks
    third = [each[each["block"] == 3] for each in (one, other)]
    for measure in ("node_power_w", "accuracy"):
        assert not answer("difference", measure, *third).estimate.blocks


def test_a_difference_of_measured_and_modelled_power_is_not_made():
    one, other = blocks_of([30.0, 32.0]), blocks_of([10.0, 10.0], code="b").assign(power_source="modelled")
    assert not answer("difference", "node_power_w", one, other).estimate.blocks
    assert answer("difference", "runtime_s", one, other).estimate.value == 21


@pytest.mark.parametrize(
    ("form", "column", "value", "weight"),
    [("difference", "runtime_s", 21, 1), ("difference", "accuracy", 21, 1),
     ("ratio", "runtime_s", (3.0 * 3.2) ** 0.5, 1),
     ("difference_pct", "runtime_s", 100 * ((3.0 * 3.2) ** 0.5 - 1), 10)],
)  # fmt: skip
def test_the_numbers_of_a_claim_are_of_the_blocks_that_can_be_compared(form, column, value, weight):
    """The third block, which has two versions of the code, enters neither the value nor its weight among several."""
    found = answer(form, column, blocks_of([30.0, 32.0, 90.0]), blocks_of([10.0, 10.0, 90.0], code="b"))
    assert (found.estimate.value, found.weight, found.estimate.blocks) == (pytest.approx(value), weight, 2)


def test_runs_of_two_machines_have_no_interval():
    """They never take turns, whatever their clocks say."""
    one, other = blocks_of([30.0, 32.0]), blocks_of([10.0, 10.0], code="b")
    assert math.isfinite(answer("ratio", "runtime_s", one, other).estimate.low)
    found = answer("ratio", "runtime_s", one, other.assign(machine="another")).estimate
    assert (found.value, found.pairing) == (pytest.approx((3.0 * 3.2) ** 0.5), "unpaired")
    assert math.isnan(found.low) and math.isnan(found.high)


def answers_of(*estimates, weights=(1, 1)):
    rows = [claim_estimates.Estimate(*numbers, blocks=3) for numbers in estimates]
    return [claim_estimates.Answer(each, Arms(pd.DataFrame()), weight)
            for each, weight in zip(rows, weights, strict=False)]  # fmt: skip


def test_several_numbers_have_a_range_and_those_of_rank_counts_no_mean():
    one = claims._combine(answers_of((1, 0.5, 1.5)))
    assert (one["value"], one["low"], one["high"], one["series"]) == (1, 0.5, 1.5, None)
    assert math.isnan(one["lowest"]) and math.isnan(one["highest"])
    answers = answers_of((1, 0.5, 1.5), (4, 3, 6), weights=(2, 1))
    several = claims._combine(answers)
    assert (several["value"], several["lowest"], several["highest"], several["series"]) == (2, 1, 4, 2)
    assert math.isnan(several["low"]) and math.isnan(several["high"]), "a mean over networks has no interval"
    ranks = claims._combine(answers, of_rank_counts=True)
    assert (ranks["lowest"], ranks["highest"], ranks["low"], ranks["high"]) == (1, 4, 0.5, 6)
    assert math.isnan(ranks["value"])
    open_end = claims._combine(answers_of((1, 0.5, math.nan), (4, 3, 6)), of_rank_counts=True)
    assert open_end["low"] == 0.5 and math.isnan(open_end["high"])
