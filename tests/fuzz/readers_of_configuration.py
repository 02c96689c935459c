"""Configuration: every YAML file that a user or the project writes, and the text files beside them."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import damage
import hypothesis.strategies as st
import yaml
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core import checked, configuration
from study.experiment import published_times
from study.machines import host_file, machine, profile_files
from study.prediction import goals, published
from study.records import references
from study.report.figures import description
from study.report.findings import declaration

SHIPPED = configuration.CONFIG
FAST_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def dumped(content):
    return yaml.dump(content, Dumper=FAST_DUMPER, allow_unicode=True, sort_keys=False)


class OfConfiguration(Reader):
    """A file of a copy of config/, which the code reads instead."""

    file = ""

    def prepare(self, folder):
        root = folder / "project"
        shutil.copytree(SHIPPED, root / "config")
        checked.ROOT, configuration.CONFIG = root, root / "config"
        published.CONFIG = published_times.CONFIG = root / "config"
        os.chdir(root)
        return root / "config" / self.file

    def damage(self, content):
        return damage.yaml_files(content, dumped, yaml.safe_load)

    def names(self, path):
        return (str(Path(self.file)),)


class Parsed(OfConfiguration):
    """What is read is what PyYAML reads."""

    schema = {"type": "object"}

    def read(self, path):
        return repr(checked.load(path, self.schema))

    def expect(self, path):
        return repr(damage.yaml_content(path))


@reader("values of YAML", "yaml", "study.core.checked:read")
class Values(Parsed):
    """Scalars that YAML 1.1 and 1.2 read alike, or of which YAML 1.1 makes a text and 1.2 a number."""

    file = "values.yaml"

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_text("".join(f"k{number}: {text}\n" for number, text in enumerate(self.good)))
        return path

    good = ("1", "-2.5", "true", "~", "text", "1e-3", "0o17", "0x1F", ".inf", "'010'", '"no"')
    words = (*good, "010", "08", "1_000", "1:30", "0b11", "yes", "Off", "2024-01-01", "2024_11", "1e3", "+.5", "-.5e3",
             "1.e2", "1.5e3", "0o8", "0x_1", "190:20:30.15", "1e400", "1e-400", "!!float 1", "!!str 010", "NULL",
             ".5_0", "truE", "=", "+12", "-0", "00", "0.", "1__0", "3.", "685_230.15",
             "2001-12-14t21:59:43.10-05:00")  # fmt: skip

    def damage(self, content):
        word = st.sampled_from(self.words) | st.text("0123456789.eE+-_:xob", max_size=6)
        some = st.dictionaries(st.sampled_from("abcdef"), word, min_size=1, max_size=2)
        lines = some.map(lambda found: "".join(f"{key}: {word}\n" for key, word in found.items()).encode())
        return lines | damage.yaml_files(content, dumped, yaml.safe_load)

    def expect(self, path):
        told = damage.yaml_content(path)
        tree = yaml.compose(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        loader = yaml.SafeLoader("")
        if not all(isinstance(value, yaml.ScalarNode) for _, value in tree.value):
            return NOTHING_TO_COMPARE
        for key, value in tree.value:
            is_tagged = value.tag != loader.resolve(yaml.ScalarNode, value.value, (True, False))
            is_text = not value.style and isinstance(told.get(key.value), str) and not is_tagged
            if is_text and re.fullmatch(r"0o[0-7]+", value.value):
                told[key.value] = int(value.value, 8)
            elif is_text and re.fullmatch(r"[-+.0-9eE]+", value.value) and value.tag.endswith(":str"):
                with contextlib.suppress(ValueError):
                    told[key.value] = float(value.value)
        return repr(told)


@reader("a study", "yaml", "study.core.checked:read")
class Study(Parsed):
    file = "studies/sharing_laptop.yaml"


@reader("config.yaml", "yaml", "study.core.checked:read")
class Settings(OfConfiguration):
    file = "config.yaml"

    def read(self, path):
        return configuration.settings()

    def expect(self, path):
        return damage.yaml_content(path)


@reader("a machine", "yaml", "study.core.checked:read")
class Machine(OfConfiguration):
    file = "machines/local.yaml"

    def read(self, path):
        return machine.load("local")["cores_per_rank"]

    def expect(self, path):
        return damage.yaml_content(path)["cores_per_rank"]


@reader("figures.yaml", "yaml", "study.core.checked:read")
class Figures(OfConfiguration):
    file = "figures.yaml"

    def read(self, path):
        description._declared.cache_clear() if hasattr(description, "_declared") else None
        return repr(checked.load(path, "figures"))

    def expect(self, path):
        return repr(damage.yaml_content(path))


@reader("a finding's declaration", "yaml", "study.core.checked:read")
class Finding(OfConfiguration):
    file = "findings/parallel_shortens_run.yaml"

    def read(self, path):
        return repr(configuration.load_named("findings", "parallel_shortens_run", declaration.schema()))

    def expect(self, path):
        return repr(damage.yaml_content(path))


@reader("a goal", "yaml", "study.core.checked:read")
class Goal(OfConfiguration):
    file = "prediction/goals/cheapest.yaml"

    def prepare(self, folder):
        self.name = sorted((SHIPPED / "prediction" / "goals").glob("*.yaml"))[0].stem
        type(self).file = f"prediction/goals/{self.name}.yaml"
        return super().prepare(folder)

    def read(self, path):
        return goals.load(self.name) and None


@reader("performance references", "yaml", "study.core.checked:read")
class References(OfConfiguration):
    file = "references/local/regression.yaml"

    def prepare(self, folder):
        path = super().prepare(folder)
        point = {"quantity": "runtime_s", "unit": "s", "code": "c", "fingerprint": "f", "accepted": "2026-01-01"}
        entries = [references.Accepted(point="p", value=4.0, repeats=5, interval=[2.0, 8.0], **point),
                   references.Accepted(point="q", value=3.5, **point)]  # fmt: skip
        references.write(path, entries)
        return path

    def read(self, path):
        return {key: each.value for key, each in references.read(path).items()}

    def expect(self, path):
        told = damage.yaml_content(path)["references"]
        return {(each["quantity"], each["point"]): each["value"] for each in told}


@reader("a paper's times.yaml", "yaml", "study.core.checked:read")
class Times(OfConfiguration):
    file = "papers/icpp2019/times.yaml"

    def read(self, path):
        published_times.points.cache_clear()
        return published_times.points() is None

    def names(self, path):
        return "papers/icpp2019", "benchmark", "machine"


@reader("a paper's published table", "csv", "study.experiment.published_times:_points")
class PublishedTable(OfConfiguration):
    file = "papers/icpp2019/icpp2019_table2_nt3_strong.csv"

    def names(self, path):
        return (path.name, *super().names(path))

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        published_times.points.cache_clear()
        found = published_times.points()
        mine = found[found["paper"] == "icpp2019"]
        mine = mine[mine["machine"].eq("summit") & mine["scaling"].eq("strong") & mine["benchmark"].eq("nt3")]
        return sorted(mine["time_per_epoch_s"].tolist())

    def expect(self, path):
        from readers_of_runs import rows_of

        rows = rows_of(path)
        if any(row.get("machine") not in ("summit",) or not row.get("gpus") for row in rows):
            return NOTHING_TO_COMPARE
        return sorted(float(row["time_per_epoch_s"]) for row in rows if row["time_per_epoch_s"] and row["machine"])


@reader("a paper's points for a prediction", "csv", "study.prediction.published:_points",
        "study.prediction.published:_with_energy")  # fmt: skip
class PredictedTable(PublishedTable):
    file = "papers/icpp2019/icpp2019_table5_nt3_power_energy.csv"

    def read(self, path):
        declared = checked.load(SHIPPED / "papers" / "icpp2019" / "prediction.yaml", "published_prediction")
        points = published._points("icpp2019", declared)
        found = published._with_energy("icpp2019", declared, points, "read_csv")
        return sorted(found["energy_per_rank_j"].tolist())

    def expect(self, path):
        return NOTHING_TO_COMPARE


@reader("a Snakemake profile", "yaml", "study.core.checked:read")
class Profile(Reader):
    def prepare(self, folder):
        os.chdir(folder)
        path = folder / "config.yaml"
        path.write_text("jobs: 1\nkeep-going: true\nconfigfile: [one.yaml, two.yaml]\n")
        return path

    def damage(self, content):
        return damage.yaml_files(content, dumped, yaml.safe_load)

    def read(self, path):
        found = profile_files.hidden(["--profile", str(path.parent)], {}, [])
        return [str(each.relative_to(path.parent)) if each.is_relative_to(path.parent) else str(each) for each in found]

    def expect(self, path):
        named = damage.yaml_content(path).get("configfile", [])
        named = [named] if isinstance(named, str) else named
        return [name if not Path(name).is_absolute() else str(Path(name)) for name in map(str, map(Path, named))]


@reader("a host file", "text", "study.machines.host_file:listed")
class HostFile(Reader):
    def prepare(self, folder):
        path = folder / "hosts"
        path.write_text("# two hosts\nh1 slots=2\nh2\n")
        return path

    def damage(self, content):
        lines = [
            b"h1 slots=0\n",
            b"h3 slots=-1\n",
            b"h4 slots=1e3\n",
            b"h5 slots=" + b"9" * 5000 + b"\n",
            b"-oProxy=x\n",
            b"h6 slots = 7 # seven\n",
            b"h1\n",
            b"\xc3\xa4\n",
            b"h7 slots=\xd9\xa3\n",
            b"\0\n",
            b"h8;id\n",
        ]
        return damage.cut(content, tuple(lines)) | st.sampled_from([*damage.encodings(content.decode()), *lines])

    def read(self, path):
        return sum(host_file.listed(str(path)).values())

    def expect(self, path):
        lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
        return sum(int(line.split("=")[1]) if "=" in line else 1 for line in lines if line)
