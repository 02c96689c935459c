"""Configuration: the YAML files that a user writes."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import damage
import hypothesis.strategies as st
import yaml
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core import configuration, validation
from study.machines import machine

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
        validation.ROOT, configuration.CONFIG = root, root / "config"
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
        return repr(validation.load_valid_yaml(path, self.schema))

    def expect(self, path):
        return repr(damage.yaml_content(path))


@reader("values of YAML", "yaml")
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


@reader("a study", "yaml")
class Study(Parsed):
    file = "studies/sharing_laptop.yaml"


@reader("config.yaml", "yaml")
class Settings(OfConfiguration):
    file = "config.yaml"

    def read(self, path):
        return configuration.load_settings()

    def expect(self, path):
        return damage.yaml_content(path)


@reader("a machine", "yaml")
class Machine(OfConfiguration):
    file = "machines/local.yaml"

    def read(self, path):
        return machine.load("local")["cores_per_rank"]

    def expect(self, path):
        return damage.yaml_content(path)["cores_per_rank"]
