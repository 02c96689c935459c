"""Variables of batch jobs: those of a job that is not the machine's, or that is over, steer no run."""

from collections.abc import Mapping
from typing import Any

# Variables of each batch system's jobs and of the launchers in them, by their prefixes.
OF_JOBS: dict[str, tuple[str, ...]] = {
    "slurm": ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_"),
    "pbs": ("PBS_", "PALS_"),
    "lsf": ("LSB_", "LSF_PM_", "JSM_"),
    "cobalt": ("COBALT_", "ALPS_"),
    "flux": ("FLUX_",),
}
# Of a process that a launcher has started; set in the job's own processes only.
OF_LAUNCHERS = ("PMI_", "PMIX_", "PALS_", "JSM_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_",
                "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_FILE_LOCATION",
                "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "HYDRA_", "MV2_COMM_WORLD_")  # fmt: skip

# Of the shell, by which Slurm's commands leave jobs out or write times otherwise (squeue(1), sacct(1)).
OF_ANSWERS = ("SQUEUE_", "SLURM_TIME_FORMAT")

# Slurm's variables that say which job this is, on which nodes (for mpirun), and where Slurm is (srun(1)). The others of
# a job are defaults for the commands in it: an srun would take them, or those of a job around it, for its own.
OF_SLURM_S_JOB = frozenset({
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE",
    "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_CONF", "SLURM_CONF_SERVER",
})  # fmt: skip
OF_COMMANDS = ("SLURM_", "SRUN_", "SBATCH_")


def with_plain_answers(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those of `OF_ANSWERS`: Slurm's commands then answer in full, and as documented."""
    return {name: value for name, value in variables.items() if not name.startswith(OF_ANSWERS)}


def without_other_jobs(variables: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, str]:
    """``variables`` without those of batch jobs that are not the machine's: a shell keeps those of a job that is over.

    Launchers obey them: Open MPI would start ranks on the nodes of ``SLURM_NODELIST``.
    """
    own = machine.get("scheduler")
    others = [prefix for name, prefixes in OF_JOBS.items() if name != own for prefix in prefixes]
    others = [prefix for prefix in others if prefix not in OF_JOBS.get(own or "", ())]
    if own is None:
        others += [*OF_LAUNCHERS, "STUDY_JOB_"]
    return {name: value for name, value in variables.items() if not name.startswith(tuple(others))}


def without_defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` of a job of Slurm without the `OF_COMMANDS` that are not `OF_SLURM_S_JOB`; others' as they are."""
    if "SLURM_JOB_ID" not in variables:
        return dict(variables)
    return {
        name: value for name, value in variables.items() if name in OF_SLURM_S_JOB or not name.startswith(OF_COMMANDS)
    }
