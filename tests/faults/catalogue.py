"""All faults, in the same order however their modules were imported."""

import artefact_faults
import data_faults
import host_faults
import network_faults
import pytorch_faults
import registry
import run_faults
import workflow_faults

MODULES = (
    data_faults, run_faults, artefact_faults, host_faults, network_faults, workflow_faults, pytorch_faults,
)  # fmt: skip
FAULTS = {
    name: fault
    for module in MODULES
    for name, fault in registry.FAULTS.items()
    if fault.function.__module__ == module.__name__
}
