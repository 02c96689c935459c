"""The table of image formats: what each costs to read, and to read and decode."""

import numpy as np
import pandas as pd
import pytest

from study.report.tables import TABLES

LOAD = {"machine": "m", "dataset": "d", "page_cache": "warm", "status": "ok", "message": None,
        "imported_memory_mb": 100.0, "code_is_current": True, "record": "loading.json", "repeat": 1, "crc32": 1,
        "cold_reason": None}  # fmt: skip


def loads():
    """Loads of two benchmarks' files of numbers."""
    rows = []
    for benchmark, columns in (("nt3", 60484), ("p1b3", 4)):
        for place, name in enumerate(["npy", "read_csv"], start=1):
            sizes = {"benchmark": benchmark, "file": "train", "rows": 1000, "columns": columns, "loader": name}
            rows.append({**LOAD, **sizes, "load_s": 0.2 * place, "peak_memory_mb": 200.0})
    return pd.DataFrame(rows)


def test_images_have_a_table_of_their_own():
    """Two repeats of two formats; loads of numbers in the same study are left out."""
    same = {**LOAD, "benchmark": "lenet", "file": "train", "rows": 100, "columns": 768, "size_mb": 2.0}
    images = [
        {
            **same,
            "loader": name,
            "repeat": repeat,
            "load_s": read,
            "decode_s": decode + repeat,
            "decoder_s": None if name == "lmdb" else 2.0 * repeat,
            "peak_memory_mb": 200.0,
        }
        for name, read, decode in (("tfrecord", 0.5, 3.0), ("lmdb", 0.25, 2.0))
        for repeat in (1, 2)
    ]
    both = pd.concat([loads().assign(size_mb=1.0), pd.DataFrame(images)], ignore_index=True)
    found = TABLES["image_formats"].make(pd.DataFrame(), both).frame
    assert found["loader"].tolist() == ["lmdb", "tfrecord"]
    assert found["read_images_per_s"].tolist() == [400, 200]
    assert found["decode_s"].tolist() == [3.5, 4.5]
    assert found["time_per_image_s"].tolist() == [0.035, 0.045]
    assert found["decoder_per_image_s"][1] == 0.03 and np.isnan(found["decoder_per_image_s"][0])
    # Student's t with one degree of freedom: 12.706 x standard deviation / square root of 2.
    assert found["decode_ci95_s"].tolist() == pytest.approx([12.706 * 0.5] * 2, rel=1e-4)
