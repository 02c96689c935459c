"""Every wait has an end: the calls that wait, found in the code, and what ends each."""

import ast

import pytest
from tracked import ours

from study.core.paths import ROOT

SCRIPTS = ROOT / "scripts"
# By the end of a call's name; `study.core.commands.run_program` is none, as nobody can call it without a limit.
WAITING = {
    "sleep", "_sleep", "wait", "waitid", "waitpid", "communicate", "select.select", "signal.pause", "result", "accept",
    "recv", "readline", "stdin.read", "subprocess.run", "check_call", "check_output", "urlopen",
    "retrieve", "wait_for", "wait_for_files", "wait_for_end", "thread.join", "reader.join", "copy.join",
}  # fmt: skip
# What ends the waits of each function, ``module:function``.
ENDS = {
    "a limit of its own": """
        core.commands:kill_session core.commands:run_program core.commands:wait_for_end
        commands.measured_command:read_partition core.locks:claim_name data.download:fetch
        data.loader_timing:_run_in_new_process
        instruments.disturbance:describe_machine
        instruments.disturbance:wait_for_quiet
        instruments.power.sampling:_read_answer
        instruments.power.sampling:_Sampler.stop
        contrib.gpu_check.load:main contrib.gpu_check.load:wait_for_others contrib.gpu_check.study_runs:_end
        contrib.gpu_check.study_runs:run_study
        launch.batch_job:BatchJob.prepare launch.batch_job:run_lanes launch.batch_job:wait_for_files
        launch.launch:_wait_for_guards launch.processes:_end_processes launch.run_directory:lock_folder
        launch.supervision:_end_session
        launch.supervision:_Watch.wait launch.supervision:run_launcher
        machines.batch_jobs:_run_submit
        machines.guard:_guard machines.guard:_kill_descendants machines.guard:_read_order machines.guard:_reap
        machines.host_check:check_hosts machines.host_check:_converse machines.host_check:_converse.read
        machines.machine_lock:_hold_lock_there machines.machine_lock:_take
        machines.probe:_wait_for_file machines.probe:_read_commit
        machines.remote:_is_running
        communication.channel:_admit
        communication.rendezvous:_await_file communication.rendezvous:_gather_facts communication.rendezvous:_wait
        training.process_tree:end_tree training.process_tree:reap_children
        training.program:_wait_for_helpers
        training.program:Program._end_following training.program:Program._agree_on_address
        workloads.command.output:OutputCopier.join
    """,
    "the run's limits, which study.launch.supervision holds": """
        launch.processes:_wait_for_lost launch.processes:run_all launch.spots:_read_ports launch.spots:hold_ports
        communication.channel:Channel.__init__ communication.channel:Channel.ask
        communication.channel:Channel.receive communication.channel:_connect
        training.checkpoints:Writer.close ensembles.buffer:Queue.get ensembles.buffer:Queue.put
        ensembles.consumption:_wait_for_full_buffer ensembles.ring:_poll_until
        ensembles.consumption:Accelerator.compute ensembles.consumption:Accelerator.finish
        ensembles.stream:Stream._finish training.loop:Loop.begin_step
        backends.tensorflow.local_replica:_run_without_strategy
        training.program:Program._read_until_end
        training.program:Program._start_following.watch
    """,
    "the walltime of the batch job": "launch.batch_job:_Runner._run_command",
    "the end of Snakemake, for which the user waits": "workflow.passes:run_snakemake",
    "the end of ssh, which notices a lost host": "machines.remote:main",
    "the end of the process that started this one": """
        instruments.heartbeats:Heartbeat._watch instruments.power.sampler:_wait_for_close
        machines.probe:hold_until_ended machines.machine_lock:main machines.probe:main
    """,
    "work of this process, which is finite": """
        data.text_table:Stream.blocks.next_block data.text_table:fill_matrix
        backends.pytorch.input:Input.make_batches
    """,
    "none: it reads a file": """
        data.conversion:_find_readable_columns data.loaders:load_by_dask data.loaders:load_by_dask_dataframe
        data.text_table:read_column_names instruments.heartbeats:_count_bytes_read
    """,
}


def waits():
    """{module:function} of every waiting call in the library."""
    found = set()
    for path in ours((SCRIPTS / "study").rglob("*.py")):
        module = ".".join(path.relative_to(SCRIPTS / "study").with_suffix("").parts)
        found |= {f"{module}:{function}" for function in _in(ast.parse(path.read_text(encoding="utf-8")), "")}
    return found


def _in(node, function):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _in(child, f"{function}.{child.name}" if function else child.name)
            continue
        name = f".{ast.unparse(child.func)}" if isinstance(child, ast.Call) else ""
        if any(name.endswith((f".{each}", f"_{each}")) for each in WAITING):
            yield function or "<module>"
        yield from _in(child, function)


@pytest.mark.slow
def test_every_wait_has_an_end():
    named = [place for text in ENDS.values() for place in text.split()]
    assert len(set(named)) == len(named), "named twice"
    assert sorted(waits() - set(named)) == [], "say what ends each, in ENDS"
    assert sorted(set(named) - waits()) == [], "no longer there"


@pytest.mark.slow
def test_programs_have_a_limit():
    """`subprocess.run` waits for all that a program starts; `study.core.commands.run_program` does not."""
    found = [
        f"{path.name}: {ast.unparse(call)[:60]}"
        for path in ours((SCRIPTS / "study").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "subprocess.run"
        and "timeout" not in {each.arg for each in call.keywords}
        and path.name != "probe.py"  # imports no other module; whoever starts it ends it
    ]
    assert found == []
