"""Configuration: the YAML files that a user writes."""

import os
import shutil

import damage
import yaml
from readers import Reader, reader

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
