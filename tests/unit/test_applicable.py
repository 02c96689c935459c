"""Rows of runs list the grid keys that can have an effect in them, and no key of another framework."""

from types import SimpleNamespace

import pandas as pd
import pytest
from examples import expand

from study.experiment import applicability, programs
from study.experiment.parameters import PARAMETERS
from study.records import own_keys
from study.records.tidy import read_runs
from study.report.page import appendix
from study.report.page.links import Embedding, RecordLinks
from study.report.tables.kinds import with_own_keys
from study.report.tables.layout import Table

COMMAND = {"kind": "command", "command": ["sh", "count.sh", "{epochs}"]}
OF_TENSORFLOW = {"training_loop", "xla"}


def command(spec=COMMAND, **values):
    """The keys that a run of a command lacks."""
    return applicability.find_inapplicable_keys({"batch_size": 1, **values}, spec)


def test_a_command_has_what_it_is_handed_and_what_the_launch_obeys():
    lacks = command()
    assert {*OF_TENSORFLOW, "framework", "strategy", "fusion_threshold_mb", "loader", "dataset"} <= lacks
    assert not {"benchmark", "scaling", "work", "gpus", "epochs", "core_limit"} & lacks
    assert {"batch_size", "batch_size_per_rank"} <= lacks, "it sets its own, which nobody knows"
    assert not {"batch_size", "batch_size_per_rank"} & command(batch_size=64), "its file says it"
    words = {**COMMAND, "command": ["sh", "{batch_size_per_rank}", "{precision}"]}
    assert not {"batch_size", "batch_size_per_rank", "precision"} & command(words)


@pytest.mark.parametrize(
    ("framework", "strategy", "lacks", "has"),
    [
        ("tensorflow", "horovod", {"torch_compile", "servers"}, OF_TENSORFLOW | {"cycle_time_ms"}),
        ("pytorch", "horovod", OF_TENSORFLOW, {"cycle_time_ms", "precision"}),
        ("pytorch", "ddp", OF_TENSORFLOW | {"cycle_time_ms"}, {"torch_compile"}),
        ("tensorflow", "parameter_server", {"cycle_time_ms", "training_loop", "torch_compile"}, {"servers"}),
    ],
)
def test_our_training_has_the_keys_of_its_framework_and_strategy(framework, strategy, lacks, has):
    found = applicability.find_inapplicable_keys({"framework": framework, "strategy": strategy}, {})
    assert lacks <= found and not has & found
    assert found <= {*PARAMETERS, *applicability.DERIVED}


@pytest.fixture
def both():
    """The tidy table of a run of ours and of one of a command, with few columns besides the grid keys."""
    (ours,) = expand()
    of_command = {**ours.parameters, "benchmark": "mine", "batch_size": 1, **dict.fromkeys(programs.WITHOUT, "none")}
    found = []
    for run, spec, per_rank in ((ours.parameters, {}, 20), (of_command, COMMAND, 1)):
        told = own_keys.describe_lacking_keys(SimpleNamespace(spec=spec), run)
        place = {"machine": "local", "status": "ok", "record": f"runs/{run['benchmark']}/record.json"}
        found.append({**run, **place, "batch_size_per_rank": per_rank, **told})
    return pd.DataFrame(found)


def test_the_report_s_table_of_runs_lacks_the_keys_of_a_command(both, tmp_path):
    of_command = both[both["benchmark"] == "mine"]
    links, space = RecordLinks(both, pd.DataFrame()), Embedding(tmp_path, 1)
    alone, mixed = (
        {column.name: column for column in appendix.make_runs_table(runs, links, space).columns}
        for runs in (of_command, both)
    )
    assert not {*OF_TENSORFLOW, "framework", "loader"} & set(alone) and {"gpus", "epochs"} <= set(alone)
    assert {*OF_TENSORFLOW, "framework", "loader"} <= set(mixed)


def test_what_is_written_of_a_command_has_no_value_of_a_key_that_it_does_not_have(both, tmp_path):
    own_keys.empty_lacking_keys(both).to_csv(tmp_path / "runs.csv", index=False)
    written = pd.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    names = ["gpus", "epochs", "loader", "dataset", "batch_size", "batch_size_per_rank", "framework", "xla"]
    assert written.loc[0, names].tolist()[:4] == ["2", "4", "read_csv", both["dataset"][0]]
    assert written.loc[0, names].tolist()[4:] == ["20", "20", "tensorflow", "False"]
    assert written.loc[1, names].tolist() == ["2", "4", *[""] * 6]
    assert written[own_keys.REASON].tolist() == ["", own_keys.WHY] and own_keys.LACKING not in written
    read = read_runs(tmp_path / "runs.csv")
    kept = [name for name in both if name not in (own_keys.LACKING, own_keys.REASON)]
    assert read[kept].to_dict("records") == both[kept].to_dict("records"), "readers have what they had"
    assert own_keys.list_lacking_columns(read) == own_keys.list_lacking_columns(both) != {}
    only_ours = both[:1].drop(columns=own_keys.LACKING)
    assert own_keys.empty_lacking_keys(only_ours).equals(only_ours)


def test_tables_have_no_key_that_their_commands_do_not_have(both):
    frame = both[["benchmark", "loader", "gpus", "batch_size", "xla", "machine"]].assign(runtime_s=[1.0, 2.0])
    shown = ["benchmark", "loader", "gpus", "batch_size", "runtime_s"]
    mixed = with_own_keys(Table("t", "c", frame, shown), both)
    assert mixed.frame["loader"].isna().tolist() == [False, True]
    assert mixed.frame["batch_size"].tolist() == [20, pd.NA] and mixed.frame["gpus"].tolist() == [2, 2]
    assert mixed.frame[own_keys.REASON].tolist() == [None, own_keys.WHY]
    assert mixed.notes == [f"keys_reason: {own_keys.WHY}"]
    alone = with_own_keys(Table("t", "c", frame[1:], shown), both)
    assert list(alone.frame) == ["benchmark", "gpus", "machine", "runtime_s"] and alone.notes == []
    assert alone._present() == ["benchmark", "gpus", "runtime_s"]
    assert with_own_keys(Table("t", "c", frame[:1], shown), both).frame.equals(frame[:1])
