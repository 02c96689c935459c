"""The table of runs, and measured points that other programs write."""

import json
import math
import sys
from pathlib import Path

import damage
import numpy as np
import pandas as pd
from readers import Reader, reader
from readers_of_runs import PartOfARun, number, rows_of

from study.compare import arms, likeness
from study.contrib.readers import series_files
from study.core import paths
from study.core.files import write_json
from study.experiment.study import PlannedRun  # noqa: F401  its imports are slow
from study.records import record, tidy
from study.report import terminal
from study.report.page.links import RecordLinks

sys.path.insert(0, str(Path(paths.ROOT) / "scripts"))

READ = ("runtime_s", "load_s", "gpus", "peak_memory_mb")


@reader("runs.csv", "csv")
class Runs(PartOfARun):
    """The table of a study's runs."""

    def prepare(self, folder):
        super().prepare(folder)
        write_json(self.folder / "record.json", record.make_record(self.folder))
        frame = tidy.runs_frame([self.planned] * 2, {"nt3": "c0de"}, self.root / "local")
        switches = json.dumps([["switch", "base", {"loader": ["npy", "read_csv"]}]])
        path = folder / "runs.csv"
        frame.assign(arms=[switches, None]).to_csv(path, index=False)
        return path

    def names(self, path):
        return path.name, str(path)

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        frame = tidy.read_runs(path)
        terminal.print_failures(path, "results")
        if frame.empty:
            return None
        RecordLinks(frame, pd.DataFrame())
        for text in frame.get("arms", []):
            arms.parse_arms(text)
        if "steering" in frame:
            likeness._differs_in_steering(frame)
        return [[float(value) for value in frame[name]] for name in READ if name in frame and name != "gpus"]

    def expect(self, path):
        if not path.read_bytes().strip():
            return None
        rows = rows_of(path)
        if not rows:
            return None
        return [[number(row[name]) for row in rows] for name in READ if name in rows[0] and name != "gpus"]


class OfPoints(Reader):
    """Measured points that others bring: each ends in an answer, or in one line that names the file."""

    file, content = "", ""

    def prepare(self, folder):
        (folder / self.file).write_text(self.content)
        return folder / self.file

    def read(self, path):
        found = series_files.read_series_files([f"8:{path}" if path.suffix == ".log" else str(path)], "per_rank")
        for each in found:
            model = each.fit_model()
            low, median, high = model.predict_interval(np.array([64.0])) if model else ([1.0], [1.0], [1.0])
            assert 0 < low[0] <= median[0] <= high[0] < math.inf
        return found


@reader("points.csv", "csv")
class Points(OfPoints):
    file = "points.csv"
    content = "series,ranks,nodes,runtime_s,batch_size\n" + "".join(
        f"a,{ranks},1,{10 + ranks}.5,8\n" for ranks in (1, 2, 4, 8)
    )

    def damage(self, content):
        return damage.csv_files(content)


@reader("MLPerf log", "text")
class MlperfLog(OfPoints):
    file = "result.log"
    content = "".join(
        f':::MLLOG {{"key": "{key}", "time_ms": {ms}}}\n' for key, ms in (("run_start", 5), ("run_stop", 65_000))
    )

    def damage(self, content):
        return damage.cut(content, (b"\n", b"{}", b"1e999", b"-1", b"NaN", b"null"))
