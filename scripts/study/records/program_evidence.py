"""What shows that a command did its work, and what speaks against it; by its files, its events and its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.experiment.definition import RunDefinition
from study.machines.launchers import TAG
from study.workloads import command
from study.workloads.command import reading
from study.workloads.command.code_files import matches_any

LOG = "train.log"
OWN_LINE = re.compile(rb"^(epoch \d+/\d+: \d+\.\d\d s|error: )")  # of our own process beside the program
MOST_NAMED = 3  # files, in a message
NO_EVIDENCE = (
    "nothing shows that it did its work: it reported no event, and its benchmark's file names no line (success), "
    "number (metrics) or file (outputs) by which to know; write success: with a pattern of a line that it prints at "
    "its end"
)
NO_FILES: Mapping[str, Any] = {"written": [], "used": [], "notes_reads": True, "is_whole": True}


def read_stored_output(
    folder: Path, run: RunDefinition, keys: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Any]:
    """What a run's stored output shows by other keys of its benchmark's file than those that it ran with.

    keys: as `command.select_reading`. Lines are of the process in the launcher's tag; a job has one process. live: what
    it showed while it ran, when times and processes were seen, too.
    """
    is_job = run.benchmark["starts"] == command.JOB
    lines_by_process: dict[int, list[bytes]] = {0: []}
    for line in (folder / LOG).read_bytes().split(b"\n"):
        tag = None if is_job else TAG.match(line.decode(errors="replace"))
        bare = line[len(tag[0].encode()) :] if tag else line
        if not OWN_LINE.match(bare):
            lines_by_process.setdefault(int(tag["rank"]) if tag else 0, []).append(bare)
    is_shared = run.benchmark["starts"] != command.RANK and run.ranks > 1
    again = reading.read_again(lines_by_process, keys, run.ranks, run.derived.nodes, is_shared)
    failure = again["failure"] if live["failure"] else ""
    death = "" if again["success"] else live["death"]
    return {**again, "failure": failure, "restart": again["restart"] or live["restart"], "death": death}


def explain_metrics(program: Mapping[str, Any], epoch_columns: Iterable[str]) -> list[str]:
    """Why the values of patterns are empty or not used. epoch_columns: that the program's epochs give."""
    output = program["output"]
    empty = [name for name, value in output["values"].items() if value is None]
    lines = [f"metrics.{name}: {output['faults'].get(name, 'its pattern found no number')}" for name in empty]
    unused = [name for name in epoch_columns if output["values"].get(name) is not None]
    return lines + [f"metrics.{name}: the program's epochs give it, not its pattern" for name in unused]


def list_remarks(program: Mapping[str, Any]) -> list[str]:
    """What a reader should know of a run's output and files besides what makes it unproven."""
    output, remarks = program["output"], []
    if output["error"] and not output["failure"] and not output["restart"]:
        remarks.append(f"it printed an error and went on ({output['error']})")
    for name, number in output["printers"].items():
        if number > 1:
            remarks.append(
                f"metrics.{name}: {number} ranks print it, and the number of one is taken for that of all; if each "
                "prints its own, say of: rank"
            )
    if not program.get("files", NO_FILES)["is_whole"]:
        remarks.append("its folder has so many files that nobody looked for what an earlier run left there")
    return remarks


def explain_unproven(program: Mapping[str, Any], keys: Mapping[str, Any]) -> str | None:
    """Why nothing shows that a command did its work, or what speaks against it; None if its work is shown.

    Args:
        program: the entry of ``metrics.json``.
        keys: of its benchmark's file, as `command.select_reading`.
    """
    return "; ".join([*_list_missing(program, keys), *_list_doubts(program, keys)]) or None


def _list_missing(program: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """The signs of work that a run should have and does not."""
    output, files = program["output"], program.get("files", NO_FILES)
    required = [name for name, each in command.list_metrics(keys).items() if not each.get("optional")]
    lines = [f"success: {output['faults'].get(each, f'{each!r} matches no line of its output')}"
             for each in keys.get("success", ()) if each not in output["success"]]  # fmt: skip
    lines += [f"outputs: it wrote no file {each}" for each in keys.get("outputs", ())
              if not any(matches_any(name, [each]) for name in files["written"])]  # fmt: skip
    if program["trained"]:
        return lines
    missing = [name for name in required if output["values"].get(name) is None]
    lines += [f"metrics.{name}: {output['faults'].get(name, 'its pattern found no number')}" for name in missing]
    if keys.keys() & {"success", "outputs"}:
        return lines
    if required and not missing and (why := _explain_hidden_end(program)):
        lines.append(f"{why}, and a number shows no end of the work; write success: with a pattern of its last line")
    return lines if required else [NO_EVIDENCE]


def _explain_hidden_end(program: Mapping[str, Any]) -> str:
    """Why exit code 0 does not show that a program came to its end; "" if it does."""
    if program["hidden_exit"]:
        return f"an error would not be in its exit code ({program['hidden_exit'][:60]})"
    if kills := program["memory_kills"]:
        return f"the kernel ended processes of its host for want of memory meanwhile ({kills})"
    return ""


def _list_doubts(program: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """What speaks against a run's work, or against its time."""
    output, files = program["output"], program.get("files", NO_FILES)
    lines = []
    if output["failure"]:
        lines.append(f"its output ends with words of a failure ({output['failure']}), although its exit code was 0")
    if program["is_aborted"]:
        lines.append("it reported run_stop with the status aborted")
    if program["runs_left"]:
        often = "once" if program["runs_left"] == 1 else f"{program['runs_left']} times"
        lines.append(f"a rank began its run again {often}, without run_stop: its times are of all attempts")
    if output["death"]:
        lines.append(
            f"{output['death']}, which the command's exit code 0 does not show; let the command print a line after its "
            "work, and name it under success"
        )
    if output["restart"]:
        lines.append(f"it was started again ({output['restart']}): its times are of all attempts")
    if output["resumed"] and not program["is_resumed"] and not keys.get("reuses"):
        lines.append(
            f"it says that it went on from a checkpoint ({output['resumed']}); have each run train anew (fresh, "
            "{run_folder}), or name the checkpoint under reuses if all are to begin from it"
        )
    if used := [name for name in files["used"] if not matches_any(name, keys.get("reuses", ()))]:
        names = ", ".join(used[:MOST_NAMED]) + (f" and {len(used) - MOST_NAMED} more" if used[MOST_NAMED:] else "")
        what = "it read or changed" if files["notes_reads"] else "nobody knows here whether it read"
        lines.append(
            f"{what} what an earlier run wrote ({names}), so it may have gone on from there; name it under fresh "
            "(moved aside before each run) or reuses (such as data) in its benchmark's file, or write to {run_folder}"
        )
    return lines
