"""The digest of the code changes with what a script imports, and with nothing else."""

import pytest

from study.core import code_version


def forget():
    code_version.digest.cache_clear()
    code_version._source.cache_clear()


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    files = {
        "run.py": "from study import a\nimport json\n",
        "study/__init__.py": "",
        "study/a.py": "def f():\n    from study.deep import b\n",
        "study/deep/__init__.py": "",
        "study/deep/b.py": "X = 1\n",
        "study/other.py": "Y = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code_version, "SCRIPTS", tmp_path)
    forget()
    yield tmp_path
    forget()


@pytest.mark.parametrize(
    ("changed", "entries", "same"),
    [
        ("run.py", ["run.py"], False),
        ("study/a.py", ["run.py"], False),
        ("study/deep/b.py", ["run.py"], False),
        ("study/other.py", ["run.py"], True),
        ("study/other.py", ["run.py", "study.other"], False),
    ],
)
def test_digest(scripts, changed, entries, same):
    before = code_version.digest(*entries)
    (scripts / changed).write_text((scripts / changed).read_text() + "# changed\n")
    forget()
    assert (code_version.digest(*entries) == before) is same


def test_training_code_covers_the_benchmark_the_loaders_and_the_launch():
    found = {}
    code_version._collect(code_version.SCRIPTS / "train.py", found)
    assert {
        "study/training/rank.py",
        "study/training/communicator.py",
        "study/data/loaders.py",
        "study/instruments/phases.py",
    } <= set(found)
    assert not any(name.startswith("study/report") for name in found)
    assert len(code_version.training_code("nt3")) == 12
