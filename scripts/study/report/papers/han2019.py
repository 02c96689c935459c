"""Tables I and III of the Han paper beside this study's runs."""

import math
from typing import Any

import pandas as pd

from study.experiment.parameters import is_observed
from study.report.papers.beside import beside, networks
from study.report.papers.declaration import declared
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import published
from study.report.tables.summary import points

MODELS, NVLINK = "han2019_table1_models.csv", "han2019_table3_nvlink_gb.csv"
COUNTS = ["conv_layers", "fc_layers", "parameters"]
VOLUMES = ["gpu_to_cpu_gb", "gpu_to_gpu_gb", "total_gb"]
TRAFFIC = ["gradient_mb", "tcp_sent_mb_per_step", "tcp_received_mb_per_step"]


def of_the_paper(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings of one of the paper's networks (Table I)."""
    return is_observed(run, None) and run["benchmark"] in set(published(MODELS)["benchmark"])


@table_rows("han2019_table1", uses=of_the_paper)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table I: layers and parameters of each network, as recorded by its runs and as printed."""
    table = networks(runs, MODELS, COUNTS)
    remarks = [
        "the last layer's parameters depend on the classes, here those of the dataset, in the paper 1,000; LeNet's and "
        "AlexNet's also depend on the size of the images",
        "Table I's 60,000 and 61 million parameters are those of LeNet of 1998 and of the original AlexNet, not of the "
        "networks that the paper trained",
        "the ResNets trained here have a bias in each convolution, as in Keras; TF-Slim's have none",
        "Table I's 49 and 100 convolutions leave out the four convolutions that change a shortcut's width",
        "run records have no number of layers, so these are published only",
    ]
    return Rows(table, remarks)


@table_rows("han2019_table3", uses=lambda run: of_the_paper(run) and run["gpus"] > 1)
def table3(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table III: bytes moved over NVLink in an epoch on four GPUs, and what a rank sends and receives per step here."""
    ours = points(runs, TRAFFIC) if len(runs) else pd.DataFrame(columns=["benchmark", "gpus", *TRAFFIC])
    table = beside(ours, NVLINK, ["benchmark", "gpus"], VOLUMES, workload_difference("han2019")).sort_values(
        ["benchmark", "gpus"], ignore_index=True
    )
    numbers = declared("han2019").published
    table["sent_per_gradient"] = table["tcp_sent_mb_per_step"] / table["gradient_mb"]
    for column in ("gpu_to_cpu_gb", "gpu_to_gpu_gb"):
        known = table[f"published_{column}"].notna()
        for number in ("mb_per_step", "per_gradient"):
            name = f"{column.removesuffix('_gb')}_{number}"
            table[f"published_{name}"] = [
                numbers.number(name, benchmark=benchmark) if there else math.nan
                for benchmark, there in zip(table["benchmark"], known, strict=True)
            ]
    remarks = [
        "no ratio: Table III is of NVLink between GPUs and CPUs of a node, ours of the network between ranks",
        "the batch size of Table III is not printed; 128 images per node is that of section IV-C2",
    ]
    return Rows(table, remarks)
