"""A profile's machine counts beside config files of the command line."""

import pytest

from study.core.paths import ROOT
from study.workflow import request

THETA = ROOT / "profiles" / "theta" / "machine.yaml"


@pytest.mark.parametrize(
    ("line", "variables", "given", "found"),
    [
        ("-n --profile theta --configfile my.yaml", {}, ["my.yaml"], [THETA]),
        ("-n --profile=profiles/theta --configfile my.yaml", {}, ["my.yaml"], [THETA]),
        ("-n --configfile my.yaml", {"SNAKEMAKE_PROFILE": "theta"}, ["my.yaml"], [THETA]),
        ("-n --profile theta", {}, [THETA], []),
        ("-n --profile local --configfile my.yaml", {}, ["my.yaml"], []),
        ("-n --configfile my.yaml", {}, ["my.yaml"], []),
        ("-n --profile local --workflow-profile profiles/theta --configfile my.yaml", {}, ["my.yaml"], [THETA]),
        ("-n --profile none --configfile my.yaml", {}, ["my.yaml"], []),
    ],
)
def test_the_hidden_files_of_a_profile(monkeypatch, line, variables, given, found):
    monkeypatch.chdir(ROOT)
    assert request.find_hidden_config_files(line.split(), variables, [ROOT / file for file in given]) == found
