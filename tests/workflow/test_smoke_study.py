"""The smoke study: a point of each benchmark, every loader, both page caches, a warm-up and shards, for real."""

import pandas as pd
import pytest
from project import copy_of_project


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    project = copy_of_project(tmp_path_factory.mktemp("smoke") / "project")
    project.snakemake(study="smoke")
    return project


@pytest.fixture(scope="module")
def runs(smoke):
    return pd.read_csv(smoke.made / "runs.csv").set_index("benchmark")


def history(smoke, run):
    return pd.read_csv((smoke.results / run.record).with_name("history.csv"))


def test_every_benchmark_trains_on_real_ranks(runs):
    assert runs.status.tolist() == ["ok"] * 4, runs.failure_message.tolist()
    assert runs.index.tolist() == ["nt3", "p1b1", "p1b2", "p1b3"]
    assert runs.loader.tolist() == ["read_csv", "chunked", "dask", "npy"]
    assert runs.ranks_agree.all()


def test_shards_have_no_sample_twice(smoke, runs):
    run = runs.loc["p1b2"]
    assert (run.sharding, run.samples_per_rank) == ("by_rank", 90)
    assert run.throughput_samples_per_s == pytest.approx(2 * 90 / run.time_per_epoch_s)


def test_warm_up(smoke, runs):
    run = runs.loc["p1b1"]
    assert history(smoke, run).learning_rate.tolist() == pytest.approx([0.002] * 4)
    assert run.warmup_epochs == 1


def test_p1b3_s_batch_grows_with_the_ranks(runs):
    run = runs.loc["p1b3"]
    assert (run.batch_size, run.batch_size_per_rank, run.epochs_per_rank) == (100, 125, 1)  # int(100 x 2 ^ 1/3)


def test_warm_and_cold_loads(smoke):
    loading = pd.read_csv(smoke.made / "loading.csv")
    assert (loading.status == "ok").all(), loading.message.dropna().tolist()
    nt3 = loading[loading.benchmark == "nt3"]
    if nt3.cold_reason.isna().all():
        assert nt3.groupby("page_cache").loader.unique().map(list).to_dict() == {
            cache: ["read_csv", "chunked", "dask", "npy"] for cache in ("warm", "cold")}  # fmt: skip
    else:
        assert nt3.page_cache.unique().tolist() == ["warm"]
    assert sorted(loading[loading.benchmark == "p1b3"].file.unique()) == ["descriptors", "expression", "response"]
