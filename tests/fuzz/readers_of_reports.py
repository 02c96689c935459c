"""What tables, figures and the report read: tidy tables, tables, findings, activity over time."""

import json
import math
import sys
from pathlib import Path

import damage
import numpy as np
import pandas as pd
from readers import NOTHING_TO_COMPARE, Reader, reader
from readers_of_runs import PartOfARun, number, rows_of

from study.core import checked, fields, paths
from study.core.files import write_json
from study.experiment.study import PlannedRun  # noqa: F401  its imports are slow
from study.instruments.timeline.run import communication_of
from study.prediction import imports, trackers
from study.records import arms, comparable, looks, record, run_states, tidy
from study.report.figures import timeline
from study.report.page import appendix, findings, machine, tables
from study.report.page.embedding import Embedding
from study.report.page.links import Records
from study.report.tables import published_values

sys.path.insert(0, str(Path(paths.ROOT) / "scripts"))
import show_findings

READ = ("runtime_s", "load_s", "gpus", "peak_memory_mb")


class OfTheReport(PartOfARun):
    """A file in a study's folder, beside those of one run."""

    def prepare(self, folder):
        super().prepare(folder)
        write_json(self.folder / "record.json", record.make_record(self.folder))
        self.machine = self.root / "local"
        self.study = self.machine / "studies" / "test"
        (self.study / "tables").mkdir(parents=True)
        self.frame = tidy.runs_frame([self.planned] * 2, {"nt3": "c0de"}, self.machine)
        return self.study / self.file

    def names(self, path):
        return path.name, str(path)


@reader("runs.csv", "csv", "study.records.arms:parts", "study.records.tidy:_read_table", "show_findings:_rows",
        "study.records.comparable:_steering")  # fmt: skip
class Runs(OfTheReport):
    file = "runs.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        told = json.dumps([["switch", "base", {"loader": ["npy", "read_csv"]}]])
        self.frame.assign(arms=[told, None]).to_csv(path, index=False)
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        frame = tidy.read_runs(path)
        show_findings._print_failures(path, "results")
        if frame.empty:
            return None
        Records(frame, pd.DataFrame())
        for text in frame.get("arms", []):
            arms.parts(text)
        if "steering" in frame:
            comparable._differs_in_steering(frame)
        return [[float(value) for value in frame[name]] for name in READ if name in frame and name != "gpus"]

    def expect(self, path):
        if not path.read_bytes().strip():
            return None
        rows = rows_of(path)
        if not rows:
            return None
        return [[number(row[name]) for row in rows] for name in READ if name in rows[0] and name != "gpus"]


@reader("loading.csv", "csv", "study.records.tidy:_read_table")
class Loads(OfTheReport):
    file = "loading.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        row = dict.fromkeys(fields.columns(fields.OF_LOADS)) | {
            "machine": "local",
            "benchmark": "nt3",
            "dataset": "d",
            "file": "train",
            "split": "train",
            "rows": 3,
            "columns": 2,
            "size_mb": 0.5,
            "page_cache": "warm",
            "loader": "npy",
            "repeat": 1,
            "status": "ok",
            "load_s": 0.25,
            "peak_memory_mb": 99.5,
            "crc32": 7,
            "code_is_current": True,
            "record": "loading/x/loading.json",
        }
        pd.DataFrame([row, {**row, "loader": "read_csv", "load_s": 0.75}]).to_csv(path, index=False)
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        frame = tidy.read_loading(path)
        return None if frame.empty or "load_s" not in frame else [float(value) for value in frame["load_s"]]

    def expect(self, path):
        rows = rows_of(path) if path.read_bytes().strip() else []
        return [number(row["load_s"]) for row in rows] if rows and "load_s" in rows[0] else None


@reader("loading.json", "json", "study.records.tidy:loading_frame")
class Loading(Reader):
    def prepare(self, folder):
        sample = {"repeat": 1, "file": "train", "page_cache": "warm", "loader": "npy", "status": "ok", "message": None,
                  "load_s": 0.5, "peak_memory_mb": 90.0, "crc32": 7}  # fmt: skip
        path = folder / "loading.json"
        write_json(
            path,
            {
                "schema_version": 2,
                "machine": "local",
                "benchmark": "nt3",
                "dataset": "d",
                "loading_code": "c",
                "cold_reason": None,
                "files": {"train": {"split": "train", "shape": [3, 2], "size_mb": 0.1}},
                "samples": [sample, {**sample, "loader": "read_csv", "load_s": 1.5}],
                "provenance": {},
            },
        )
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        return tidy.loading_frame([path], "c", path.parent)["load_s"].tolist()

    def expect(self, path):
        told = [each["load_s"] for each in json.loads(path.read_text())["samples"]]
        return [float("nan") if each is None else each for each in told] if any(told) else told

    def names(self, path):
        return path.name, "the loaders give different arrays"


@reader("findings.json", "json", "study.report.page.findings:read", "show_findings:_print_findings")
class Findings(OfTheReport):
    file = "findings.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        known = dict.fromkeys(checked.named_schema("study_findings")["$defs"]["finding"]["required"])
        known |= {
            "name": "n",
            "title": "Reading is faster",
            "verdict": "yes",
            "sentence": "By 30 %.",
            "quantity": "runtime_s",
            "unit": "%",
            "estimate": 30.0,
            "low": 20.0,
            "high": 40.0,
            "blocks": 6,
            "blocks_disturbed": 0,
            "runs": 12,
            "left_out": [],
            "records": ["x/record.json"],
            "look_for": "",
        }
        write_json(path, {"study": "test", "machine": "local", "findings": [known, {**known, "name": "m"}]})
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        show_findings._print_findings("test", path)
        return [each.sentence for each in findings.read(self.study)]

    def expect(self, path):
        return [each["sentence"] for each in json.loads(path.read_text())["findings"]]


@reader("the runs of first verdicts", "json", "study.records.looks:read")
class FirstVerdicts(Reader):
    def prepare(self, folder):
        self.folder = folder
        looks.write(folder, "findings", {"n": ["0123456789ab", "ba9876543210"], "m": []})
        return folder / looks.FOLDER / "findings.json"

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        found = looks.read(self.folder, "findings")
        for first in found.values():
            looks.stands(first, ["0123456789ab", "ba9876543210", "c"])
        return found

    def expect(self, path):
        return json.loads(path.read_text())


@reader("a table of the report", "csv", "study.report.page.tables:from_files")
class Table(OfTheReport):
    file = "tables/scaling.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        frame = pd.DataFrame(
            {
                "gpus": [1, 2],
                "runtime_s": [20.5, 11.25],
                "runtime_s_ci95": [1.0, None],
                "loader": ["a", "b"],
                "records": ["x/record.json", None],
            }
        )
        frame.to_csv(path, index=False)
        path.with_suffix(".md").write_text(
            "**scaling**: study test: a caption\n\n| gpus | runtime_s |\n|---|---|\n\n- a note\n"
        )
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        view = tables.from_files(path.parent, "scaling", "a title", "", Records(pd.DataFrame(), pd.DataFrame()),
                                 Embedding(self.study, 1))  # fmt: skip
        return len(view.rows)

    def expect(self, path):
        return len(rows_of(path))


@reader("a table's text", "text", "study.report.page.tables:Told.read")
class TableText(Table):
    file = "tables/scaling.md"

    def prepare(self, folder):
        super().prepare(folder)
        path = self.study / self.file
        self.study.joinpath("tables/scaling.csv").write_text("gpus,runtime_s\n1,2.5\n2,1.5\n")
        path.write_text("**scaling**: study test: a caption\n\n| gpus | runtime_s |\n|---|---|\n\n- a note\n")
        return path

    def damage(self, content):
        return damage.cut(content, (b"|", b"\n", b"\xff", b"\0", b"- ", b"**"))

    def expect(self, path):
        return 2


@reader("a paper's table", "csv", "study.report.tables.published_values:published")
class Published(OfTheReport):
    file = "icpp2019_table2.csv"

    def prepare(self, folder):
        published_values.CONFIG = folder / "config"
        path = published_values.CONFIG / "papers" / "icpp2019" / self.file
        path.parent.mkdir(parents=True)
        path.write_text(
            "machine,benchmark,gpus,time_per_epoch_s\nsummit,nt3,1,10.3\nsummit,nt3,6,10.93\nsummit,nt3,12,\n"
        )
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        published_values.published.cache_clear()
        frame = published_values.published(self.file)
        if "time_per_epoch_s" not in frame or frame["time_per_epoch_s"].dtype == object:
            return None
        return [number(str(value)) for value in frame["time_per_epoch_s"]] if len(frame) else None

    def expect(self, path):
        if self.read(path) is None:
            return NOTHING_TO_COMPARE
        rows = rows_of(path)
        try:
            return [number(row["time_per_epoch_s"]) for row in rows]
        except ValueError:  # a text, which stays one
            return NOTHING_TO_COMPARE


class OfAFigure(OfTheReport):
    """A file of a run that the figure of runs over time reads."""

    point = {"epochs": 6, "trace": True}

    def prepare(self, folder):
        super().prepare(folder)
        communication_of(self.folder).activity.to_csv(self.folder / "activity.csv", index=False)
        self.row = self.frame.iloc[0]
        return self.folder / self.file

    def read(self, path):
        labels = type("Labels", (), {"labels": {}})
        run = timeline._run(self.row, self.machine, labels, timeline.QUANTITIES["power"])
        return run.end > 0

    def expect(self, path):
        return True

    def names(self, path):
        return path.name, str(self.folder)


@reader("activity.csv", "csv", "study.report.figures.timeline:_communication")
class Activity(OfAFigure):
    file = "activity.csv"

    def damage(self, content):
        return damage.csv_files(content)


@reader("outcome.json of a figure", "json", "study.report.figures.timeline:_run")
class OutcomeOfAFigure(OfAFigure):
    file = "outcome.json"


@reader("telemetry.csv of a figure", "csv", "study.instruments.power.series:readings_in")
class TelemetryOfAFigure(OfAFigure):
    file = "telemetry.csv"

    def damage(self, content):
        return damage.csv_files(content)


@reader("phases.jsonl of a figure", "json", "study.report.figures.timeline:_run")
class PhasesOfAFigure(OfAFigure):
    file = "phases.jsonl"

    def damage(self, content):
        return damage.jsonl_files(content)


@reader("provenance.json of the report", "json", "study.report.page.machine:_provenances")
class ProvenanceOfTheReport(OfTheReport):
    def prepare(self, folder):
        super().prepare(folder)
        return self.folder / "provenance.json"

    def read(self, path):
        settings = {"name": "local", "description": "a machine", "launcher": "horovodrun"}
        found = machine.of_study(settings, self.frame, pd.DataFrame(), self.machine)
        return found.name

    def expect(self, path):
        return "local"


@reader("outcome.json of the status", "json", "study.records.run_states:state")
class Status(OfTheReport):
    def prepare(self, folder):
        super().prepare(folder)
        return self.folder / "outcome.json"

    def read(self, path):
        return run_states.state(self.folder)[0]

    def expect(self, path):
        return "done" if json.loads(path.read_text())["status"] == "ok" else "failed"


@reader("record.json of the status", "json", "study.records.record:read_record")
class StatusRecord(Status):
    def prepare(self, folder):
        super().prepare(folder)
        return self.folder / "record.json"


@reader("provenance.json of the status", "json", "study.records.run_states:hosts")
class StatusHosts(OfTheReport):
    def prepare(self, folder):
        super().prepare(folder)
        return self.folder / "provenance.json"

    def read(self, path):
        return isinstance(run_states.hosts(self.folder), str)

    def expect(self, path):
        return True


@reader("record.json of the report", "json", "study.records.record:read_record")
class ProfileOfTheReport(OfTheReport):
    point = {"epochs": 6, "profile": True}

    def prepare(self, folder):
        super().prepare(folder)
        return self.folder / "record.json"

    def read(self, path):
        shown = appendix.profiles(self.frame[:1], Records(self.frame, pd.DataFrame()), self.machine)
        return len(shown[0].rows)

    def expect(self, path):
        return len(json.loads(path.read_text())["profile"]["top"])


class OfPoints(Reader):
    """Measured points that others bring: each ends in an answer, or in one line that names the file."""

    file, content = "", ""

    def prepare(self, folder):
        (folder / self.file).write_text(self.content)
        return folder / self.file

    def read(self, path):
        found = imports.read_any([f"8:{path}" if path.suffix == ".log" else str(path)], "per_rank")
        for each in found:
            model = each.model()
            low, median, high = model.interval(np.array([64.0])) if model else ([1.0], [1.0], [1.0])
            assert 0 < low[0] <= median[0] <= high[0] < math.inf
        return found


@reader(
    "points.csv",
    "csv",
    "study.prediction.points:read_points",
    "study.prediction.imports:_of_table",
    "study.core.foreign_csv:_text",
)
class Points(OfPoints):
    file = "points.csv"
    content = "series,ranks,nodes,runtime_s,batch_size\n" + "".join(
        f"a,{ranks},1,{10 + ranks}.5,8\n" for ranks in (1, 2, 4, 8)
    )

    def damage(self, content):
        return damage.csv_files(content)


@reader("MLPerf log", "text", "study.prediction.logs:log_text", "study.prediction.logs:_mllog_entries")
class MlperfLog(OfPoints):
    file = "result.log"
    content = "".join(
        f':::MLLOG {{"key": "{key}", "time_ms": {ms}}}\n' for key, ms in (("run_start", 5), ("run_stop", 65_000))
    )

    def damage(self, content):
        return damage.cut(content, (b"\n", b"{}", b"1e999", b"-1", b"NaN", b"null"))


@reader("metric of MLflow", "text")
class MlflowMetric(Reader):
    """Of a run in MLflow's file store: a damaged line is refused, or read as it stands."""

    def prepare(self, folder):
        for name, text in (("params/world_size", "8\n"), ("metrics/step_time", "1 0.5 1\n2 0.25 2\n3 0.25 3\n")):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return folder / "metrics" / "step_time"

    def read(self, path):
        found = trackers.mlflow_run(path.parents[1])
        assert found.ranks == 8
        return found.value

    def damage(self, content):
        return damage.cut(content, (b"\n", b" ", b"1e999", b"-1", b"NaN", b"x"))
