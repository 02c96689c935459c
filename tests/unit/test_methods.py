"""The papers' methods: values of the grid keys, from the papers' folders."""

import pytest

from study.core.files import write_text
from study.experiment import methods
from study.experiment.parameters import PARAMETERS


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make the method of the paper `new` from the text of its file, in a folder of papers of its own."""

    def make(text):
        write_text(tmp_path / "papers" / "new" / "method.yaml", text)
        monkeypatch.setattr(methods, "CONFIG", tmp_path)
        methods.load_method.cache_clear()
        return methods.load_method("new")

    yield make
    methods.load_method.cache_clear()


@pytest.mark.parametrize("paper", methods.list_papers())
def test_the_papers_methods_are_valid(paper):
    assert set(methods.load_method(paper)) <= set(PARAMETERS)


def test_a_paper_is_known_by_its_folder_alone(made):
    values = made("unmentioned: default\nvalues: {staging: none, loader: [npy, mapped], cycle_time_ms: not stated}\n")
    assert methods.list_papers() == ["new"]
    assert values["loader"].list_accepted() == ("npy", "mapped") and not values["loader"].fits("chunked")
    assert values["cycle_time_ms"].fits(7) and not values["cycle_time_ms"].is_stated
    assert not values["precision"].fits("bfloat16") and "storage" not in values
    assert list(values) == [name for name in PARAMETERS if name in values]


def test_a_method_may_leave_all_keys_open(made):
    assert made("unmentioned: any\nvalues: {}\n") == {}
