"""Columns that are read without pandas are those that pandas reads, and what it refuses is refused alike."""

import numpy as np
import pytest

from study.core import csv_columns
from study.core.csv_columns import read_columns
from study.core.csv_files import FINITE, FLAG, NAME, NUMBER, TEXT, WHOLE, read_csv
from study.core.errors import StudyError

KINDS = {"epoch": WHOLE, "time_s": FINITE, "loss": NUMBER, "host": NAME, "busiest": TEXT}
HEADER = "epoch,time_s,loss,host,busiest\n"
ROW = "1,1.5,0.25,a,x\n"

PLAIN = [
    HEADER,
    HEADER + ROW,
    HEADER + "1,2,3,a,\n2,-7,4,b,NA\n",
    HEADER + "1,,,a,\n2,,5,b,None\n",
    HEADER + "1,0.1,1e-7,a,\n2,-0.30000000000000004,2.5E+10,b,nan\n",
    HEADER + '007,-0,00.5,a b,"python 0.93, ""x"" 0.10"\n',
    HEADER + "1,123456789012345678,1e22,a, b \n",
    HEADER + "1795780000123456789,9223372036854775807,-9223372036854775807,a,x\n",
    (HEADER + ROW).replace("\n", "\r\n"),
    (HEADER + ROW).rstrip("\n"),
    "more,epoch,time_s,loss,host,busiest\nanything,1,1,1,a,b\n",
]
LEFT_TO_PANDAS = [
    *(HEADER + f"{row}\n" for row in (
        "1,1e999,0.5,a,x", "1,1.5,inf,a,x", "1,1.5,nan,a,x", "1,1.5,.5,a,x", "1,1.5, 0.5,a,x", "1,1.5,+5,a,x",
        "1,1.5,True,a,x", "1,12345678901234567890,0.5,a,x", "1,9223372036854775808,0.5,a,x", "1.0,1.5,0.5,a,x",
        ",1.5,0.5,a,x", "1,1.5,0.5,,x", "1,word,0.5,a,x", "1,1.5,0.5,a", "1,1.5,0.5,a,x,y", "1,1.5,0.5,a,x\n",
        '1,1.5,0.5,a,"x', "1,1.5,0.5,a,\0",
    )),
    "epoch,time_s,loss,host\n1,1,1,a\n", "epoch,epoch,time_s,loss,host,busiest\n1,1,1,1,a,b\n", "", "\n",
]  # fmt: skip


def both(path, content):
    """What the two readers give, or with which message they refuse it."""
    path.write_bytes(content.encode())
    found = []
    for read in (read_csv, read_columns):
        try:
            table = read(path, KINDS)
        except StudyError as error:
            found.append(str(error))
            continue
        names = [name for name in table if name in KINDS]
        found.append({name: np.asarray(table[name]) for name in names})
    return found


@pytest.mark.parametrize("content", [*PLAIN, *LEFT_TO_PANDAS])
def test_both_readers_give_the_same(tmp_path, content):
    frame, columns = both(tmp_path / "table.csv", content)
    if isinstance(frame, str):
        assert columns == frame
        return
    assert frame.keys() == columns.keys()
    for name, values in columns.items():
        expected = frame[name]
        if KINDS[name] in (TEXT, NAME):
            assert values.tolist() == [None if each != each else each for each in expected]
        else:
            assert not len(values) or values.dtype == expected.dtype, name
            np.testing.assert_array_equal(values, expected.astype(values.dtype))


def test_a_long_file_and_another_kind_are_left_to_pandas(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("is,epoch\nTrue,1\nFalse,2\n")
    assert read_columns(path, {"is": FLAG, "epoch": WHOLE})["is"].tolist() == [True, False]
    expected = read_columns(path, {"epoch": WHOLE})
    monkeypatch.setattr(csv_columns, "MOST_CHARACTERS", 3)
    assert read_columns(path, {"epoch": WHOLE})["epoch"].tolist() == expected["epoch"].tolist() == [1, 2]
    assert expected.rows == 2
    assert "is" not in expected
