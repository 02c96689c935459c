"""How files come to ranks: who is on a node, copies that leave nothing behind, and what is counted as read."""

import contextlib
import socket

import numpy as np
import pytest
from fake_communicator import FakeCommunicator

from study.core.errors import StudyError
from study.core.file_kinds import read_first_bytes
from study.data import loaders
from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment.definition import RunDefinition
from study.instruments import counters
from study.training import staging

FORM = {"header": False, "codes": [{"column": 0, "values": [0, 1]}], "split": "train"}
MB = 1e6
ALONE = ((socket.gethostname(), 0),)
CONVERTED = [name for name, loader in loaders.LOADERS.items() if loader.reads in ("converted", "scaled")]
PASSES = {"parallel": 2, "numpy": 2}  # over the file: to find the ends of its lines; for the column of categories
# Where two blocks meet, dask reads on to find the end of a line. Its own call also reads the first rows beforehand.
MORE_MB = {"dask": 0.2, "dask_dataframe": 0.6}


def alone(rank=0, places=ALONE):
    """A communicator of ranks at ``places``."""
    return FakeCommunicator(rank=rank, places=list(places))


@pytest.mark.parametrize(
    ("places", "nodes"),
    [
        ([("a", 0), ("a", 1), ("b", 0)], [[0, 1], [2]]),
        ([("a", 0), ("b", 0), ("a", 1), ("b", 1)], [[0, 2], [1, 3]]),  # placed by turns
        ([("a", 0), ("a", 1), ("a", 0), ("a", 1)], [[0, 1], [2, 3]]),  # two nodes on one host
        ([("a", 0)], [[0]]),
    ],
)
def test_which_ranks_share_a_node(places, nodes):
    assert staging.group_ranks_by_node(alone(places=places)) == [tuple(members) for members in nodes]


@pytest.fixture
def run(tmp_path):
    """A run of one file with 3 MB of text and its converted matrix: ``run(staging, loader)``."""
    numbers = np.random.default_rng(1).random((300, 1000)).round(6)
    lines = (f"{row % 2}," + ",".join(map(str, values)) + "\n" for row, values in enumerate(numbers))
    (tmp_path / "raw.csv").write_text("".join(lines))
    convert(tmp_path / "raw.csv", tmp_path / "m.npy", tmp_path / "m.json", Form.from_spec(FORM))
    (tmp_path / "node").mkdir()

    def made(way, loader, node_storage=tmp_path / "node"):
        path = tmp_path / ("m.npy" if loader in CONVERTED else "raw.csv")
        return RunDefinition(
            fingerprint="",
            parameters={"staging": way, "loader": loader},
            derived=None,
            benchmark={"files": {"train": FORM}},
            dataset={},
            data={"train": {"path": str(path), "sidecar": str(tmp_path / "m.json")}},
            machine={"node_storage": str(node_storage) if way == "local_copy" else None},
        )

    return made


def loaded(run, ranks=None):
    """The table, what was counted, the phases, and what must be closed."""
    seen, staged, reads, ranks = [], contextlib.ExitStack(), counters.Reads(), ranks or alone()

    @contextlib.contextmanager
    def phases(name):
        seen.append(name)
        yield

    files = staging.provide_files(run, ranks, phases, reads, staged)
    found = staging.load_tables(run, files)
    return found["train"], reads, seen, staged


@pytest.mark.slow
@pytest.mark.parametrize("loader", loaders.LOADERS)
def test_a_copy_gives_every_loader_the_same_matrix_and_leaves_nothing(run, tmp_path, loader):
    loaders.import_modules(loader)  # or that would be counted
    first, reads, _, _ = loaded(run("none", loader))
    size = (tmp_path / ("m.npy" if loader in CONVERTED else "raw.csv")).stat().st_size
    passes_mb = PASSES.get(loader, 1) * size / MB
    assert reads.as_mb()["shared_read_mb"] == pytest.approx(passes_mb, abs=0.05 * passes_mb + MORE_MB.get(loader, 0))
    table, reads, seen, staged = loaded(run("local_copy", loader))
    assert table.matrix.tobytes() == first.matrix.tobytes()
    assert seen == ["stage"]
    assert reads.as_mb()["shared_read_mb"] == pytest.approx(
        size / MB, rel=0.01
    )  # the copy's own reading does not count
    assert reads.as_mb()["staged_mb"] == size / MB
    assert reads.as_mb()["node_read_mb"] == pytest.approx(passes_mb, abs=0.05 * passes_mb + MORE_MB.get(loader, 0))
    staged.close()
    assert list((tmp_path / "node").iterdir()) == []
    assert table.matrix.tobytes() == first.matrix.tobytes()  # a mapped copy stays as long as it is mapped


def test_node_storage_may_name_variables(run, monkeypatch, tmp_path):
    monkeypatch.setenv("NODE", str(tmp_path / "node"))
    assert loaded(run("local_copy", "npy", node_storage="$NODE"))[0].matrix.shape == (300, 1001)


def test_a_copy_that_another_rank_s_container_hides(run, monkeypatch):
    ranks = alone(1, [(socket.gethostname(), 0), (socket.gethostname(), 1)])
    for path in ("/nowhere/study-staged-1", "/proc"):  # not there; there, but something else
        hidden = (path, (1, 2), {})
        ranks.gathered = [ranks.places, [hidden, hidden]]
        with pytest.raises(StudyError, match="rank 1 does not see the copies that rank 0 made"):
            loaded(run("local_copy", "npy"), ranks)


def test_the_reads_of_the_counter_itself_do_not_count(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(5000))
    reads = counters.ReadCounter()
    for _ in range(3):
        with reads.count():
            file.read_bytes()
            read_first_bytes(file, 2)
    assert reads.asked == 3 * 5002


@pytest.mark.parametrize("content", [None, "", "rchar: 1\n", "rchar 1 read_bytes 2"])
def test_counters_that_a_kernel_does_not_have(tmp_path, monkeypatch, content):
    monkeypatch.setattr(counters, "IO_COUNTERS", tmp_path / "io")
    if content is not None:
        (tmp_path / "io").write_text(content)
    assert counters.ReadCounter().asked is None


def test_a_kernel_that_does_not_count(run, monkeypatch):
    monkeypatch.setattr(counters, "_read_io_counters", lambda: None)
    assert loaded(run("none", "mapped"))[1].as_mb() == {"shared_read_mb": None, "storage_read_mb": None}
