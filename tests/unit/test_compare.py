"""Results of two machines in the same tables, and what is refused."""

import sys

import compare_machines
import pandas as pd
import pytest
from examples import expand

from study.core.files import write_json
from study.records.record import make_record
from study.records.tidy import loading_frame, runs_frame


@pytest.fixture
def compared(make_run, tmp_path, monkeypatch, capsys):
    """Make the results of these machines and compare them: ``compared({"local": 10.0, "local_mpi": 20.0})``."""

    def compare(runtimes, tables=("scaling",), folders=None):
        (run,) = expand(gpus=2)
        for machine, runtime in runtimes.items():
            folder = make_run(run, runtime=runtime, machine=machine)
            write_json(folder / "record.json", make_record(folder))
            results = tmp_path / machine
            made = results / "studies" / "one"
            (made / "tables").mkdir(parents=True)
            runs_frame([run], {"nt3": "c0de"}, results).to_csv(made / "runs.csv", index=False)
            loading_frame([], "c0de", results).to_csv(made / "loading.csv", index=False)
            for table in tables:
                (made / "tables" / f"{table}.csv").write_text("")
        given = [str(tmp_path / name / "studies" / "one") for name in folders or runtimes]
        monkeypatch.setattr(sys, "argv", ["compare", *given, "--output", str(tmp_path / "both")])
        compare_machines.main()
        return tmp_path / "both"

    return compare


def test_each_machine_has_its_row(compared):
    table = pd.read_csv(compared({"local": 10.0, "local_mpi": 20.0}) / "scaling.csv").set_index("machine")
    assert table.runtime_s.to_dict() == {"local": 10.0, "local_mpi": 20.0}
    assert table.speedup.tolist() == [1, 1], "no machine is the other's base"
    assert table.loc["local_mpi"].records.startswith("local_mpi/runs/")


def test_the_machine_is_shown(compared):
    text = (compared({"local": 10.0, "local_mpi": 20.0}) / "scaling.md").read_text()
    assert "| machine " in text
    assert "local_mpi" in text


def test_the_hosts_are_named(compared):
    folder = compared({"local": 10.0, "local_mpi": 20.0})
    host = pd.read_csv(folder.parent / "local" / "studies" / "one" / "runs.csv")["hosts"][0]
    assert f"local ({host}), local_mpi ({host}):" in (folder / "scaling.md").read_text()


def test_one_machine_twice_is_refused(compared):
    with pytest.raises(compare_machines.StudyError, match="are both of machine local"):
        compared({"local": 10.0}, folders=["local", "local"])


def test_one_machine_s_loads_twice_are_refused(compared, tmp_path, monkeypatch):
    for name in ("local", "again"):
        made = tmp_path / name / "studies" / "one"
        (made / "tables").mkdir(parents=True)
        (made / "runs.csv").write_text("\n")
        (made / "loading.csv").write_text("machine,record\nlocal,loading/a.json\n")
        (made / "tables" / "icpp2019_table3.csv").write_text("")
    with pytest.raises(compare_machines.StudyError, match="are both of machine local"):
        compared({}, folders=["local", "again"])


def test_nothing_in_common_is_refused(compared):
    with pytest.raises(compare_machines.StudyError, match="no table in common"):
        compared({"local": 10.0, "local_mpi": 20.0}, tables=())
