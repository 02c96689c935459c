"""Configuration: the YAML files that a user writes."""

import contextlib
import os
import re
import shutil

import damage
import hypothesis.strategies as st
import yaml
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core import configuration, validation
from study.machines import machine

SHIPPED = configuration.CONFIG
FAST_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def dump(content):
    return yaml.dump(content, Dumper=FAST_DUMPER, allow_unicode=True, sort_keys=False)


@reader("a study", "yaml", file="studies/sharing_laptop.yaml")
class Parsed(Reader):
    """A file of a copy of config/, which the code reads instead: what is read is what PyYAML reads."""

    def prepare(self, folder):
        root = folder / "project"
        shutil.copytree(SHIPPED, root / "config")
        validation.ROOT, configuration.CONFIG = root, root / "config"
        os.chdir(root)
        return root / "config" / self.file

    def damage(self, content):
        return damage.yaml_files(content, dump)

    def names(self, path):
        return (self.file,)

    def read(self, path):
        return repr(validation.load_valid_yaml(path, {"type": "object"}))

    def expect(self, path):
        return repr(damage.yaml_content(path))


@reader("values of YAML", "yaml", file="values.yaml")
class Values(Parsed):
    """Scalars that YAML 1.1 and 1.2 read alike, or of which YAML 1.1 makes a text and 1.2 a number."""

    good = ("1", "-2.5", "true", "~", "text", "1e-3", "0o17", "0x1F", ".inf", "'010'", '"no"')
    words = (*good, "010", "08", "1_000", "1:30", "0b11", "yes", "Off", "2024-01-01", "2024_11", "1e3", "+.5", "-.5e3",
             "1.e2", "1.5e3", "0o8", "0x_1", "190:20:30.15", "1e400", "1e-400", "!!float 1", "!!str 010", "NULL",
             ".5_0", "truE", "=", "+12", "-0", "00", "0.", "1__0", "3.", "685_230.15",
             "2001-12-14t21:59:43.10-05:00")  # fmt: skip

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_text("".join(f"k{number}: {text}\n" for number, text in enumerate(self.good)))
        return path

    def damage(self, content):
        word = st.sampled_from(self.words) | st.text("0123456789.eE+-_:xob", max_size=6)
        lines = st.dictionaries(st.sampled_from("abcdef"), word, min_size=1, max_size=2).map(
            lambda words: "".join(f"{key}: {word}\n" for key, word in words.items()).encode()
        )
        return lines | super().damage(content)

    def expect(self, path):
        content = damage.yaml_content(path)
        tree = yaml.compose(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        loader = yaml.SafeLoader("")
        if not all(isinstance(value, yaml.ScalarNode) for _, value in tree.value):
            return NOTHING_TO_COMPARE
        for key, value in tree.value:
            is_tagged = value.tag != loader.resolve(yaml.ScalarNode, value.value, (True, False))
            is_text = not value.style and isinstance(content.get(key.value), str) and not is_tagged
            if is_text and re.fullmatch(r"0o[0-7]+", value.value):
                content[key.value] = int(value.value, 8)
            elif is_text and re.fullmatch(r"[-+.0-9eE]+", value.value) and value.tag.endswith(":str"):
                with contextlib.suppress(ValueError):
                    content[key.value] = float(value.value)
        return repr(content)


@reader("config.yaml", "yaml", file="config.yaml")
class Settings(Parsed):
    def read(self, path):
        return configuration.load_settings()

    def expect(self, path):
        return damage.yaml_content(path)


@reader("a machine", "yaml", file="machines/local.yaml")
class Machine(Parsed):
    def read(self, path):
        return machine.load("local")["cores_per_rank"]

    def expect(self, path):
        return damage.yaml_content(path)["cores_per_rank"]
