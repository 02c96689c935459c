"""Every wait has an end: the calls that wait, found in the code, and what ends each."""

import ast

import pytest
from tracked import ours

from study.core.paths import ROOT

SCRIPTS = ROOT / "scripts"
# By the end of a call's name; `study.core.commands.run` is none, as nobody can call it without a limit.
WAITING = {
    "sleep", "_sleep", "wait", "waitid", "waitpid", "communicate", "select.select", "signal.pause", "result", "accept",
    "recv", "readline", "stdin.read", "subprocess.run", "check_call", "check_output", "urlopen",
    "retrieve", "wait_for", "thread.join", "reader.join", "copy.join",
}  # fmt: skip
# What ends the waits of each function, ``module:function``.
ENDS = {
    "a limit of its own": """
        core.commands:end core.commands:run core.commands:wait data.download:fetch data.loader_timing:_in_new_process
        instruments.calibration:measure instruments.machine_state:lines instruments.power.sampling:_answer
        instruments.power.sampling:_Sampler.stop
        launch.gpu_check.children:_answer launch.gpu_check.children:holding launch.gpu_check.children:limited
        launch.gpu_check.context:Clock.sleep launch.gpu_check.run:_end launch.gpu_check.run:_in_process
        launch.gpu_check.project_study:_end
        launch.gpu_check.limit_checks:_readings launch.gpu_check.mapping:_rises launch.gpu_check.meters:_polled
        launch.gpu_check.meters:_step launch.gpu_check.meters:sampled launch.gpu_check.torch_work:Matmul.stop
        launch.gpu_check.benchmarks:_Sampled.__exit__ launch.gpu_check.benchmarks:_Sampled._run
        launch.run_limits:_Holder._answer launch.run_limits:_Holder.end
        launch.batch_job:BatchJob.prepare launch.batch_job:start launch.batch_job:wait_for
        launch.launch:_outlast_guards launch.processes:_end launch.run_directory:alone_in launch.supervision:_end
        launch.supervision:_wait launch.supervision:execute machines.batch_systems.jobs:_submitted
        machines.guard:_guarded machines.guard:_kill_descendants machines.guard:_order machines.guard:_reaped
        machines.limits.holder:_alone machines.limits.holder:_order
        machines.host_check:check machines.host_check:_conversation machines.host_check:_conversation.read
        machines.machine_lock:_alone_there machines.machine_lock:_taken machines.probe:_appears machines.probe:_commit
        machines.remote:_is_running machines.slurm_plugin:Mended._patiently_listed machines.slurm_plugin:Mended._run
        communication.rendezvous:_awaited communication.rendezvous:_gathered communication.rendezvous:_wait
        training.process_tree:end training.process_tree:waited_cpu_s
        training.program:Program._end_following training.program:Program._meeting
        workloads.command.output:Copied.join
    """,
    "the run's limits, which study.launch.supervision holds": """
        launch.processes:_wait launch.processes:run_all launch.spots:_told launch.spots:held
        instruments.power.sampling:OfProcess.__exit__ communication.channel:Channel.__init__
        communication.channel:Channel.ask
        communication.channel:Channel.asked communication.channel:Channel.gather communication.channel:_connected
        training.checkpoints:Writer.close ensembles.buffer:Queue.get ensembles.buffer:Queue.put
        ensembles.consumption:_await ensembles.halving:Halving._await_decision
        ensembles.ring:_waiting ensembles.sharing.base:ByMessages.agree
        ensembles.simulated:Accelerator.compute ensembles.simulated:Accelerator.finish
        ensembles.stream:Stream._finish training.loop:Loop.before_step
        backends.tensorflow.local_replica:_without_strategy training.program:Program._follow.watch
    """,
    "the end of Snakemake, for which the user waits": "cli:_status launch.gpu_check.project_study:_started",
    "the end of ssh, which notices a lost host": "machines.remote:main",
    "the end of the process that started this one": """
        launch.gpu_check.children:serve
        instruments.heartbeats:Heartbeat._watch instruments.power.sampler:_closed_before machines.held_ports:main
        machines.limits.holder:_wait_for_end launch.run_limits:_Holder._beat
        machines.machine_lock:main machines.probe:main
    """,
    "work of this process, which is finite": """
        data.text_table:Stream.blocks.next_block data.text_table:fill backends.pytorch.input:Input.batches
    """,
    "none: it reads a file": """
        data.conversion:_readable data.loaders:dask data.loaders:dask_dataframe data.table_faults:hint
        data.text_table:column_names instruments.heartbeats:_bytes_read
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
    """`subprocess.run` waits for all that a program starts; `study.core.commands.run` does not."""
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
