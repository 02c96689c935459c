"""The calls by which the project reads files, found in its code, as ``module:function``."""

import ast

from tracked import ours

from study.core.paths import ROOT

SCRIPTS = ROOT / "scripts"
# Functions and methods that read a file or decode what was read, by the end of the call's name.
READING = {
    "read_json",
    "parsed_json",
    "load_json",
    "load_yaml",
    "read_text",
    "read_bytes",
    "read_csv",
    "read_rows",
    "read_columns",
    "read_foreign_csv",
    "json.load",
    "json.loads",
    "yaml.load",
    "yaml.safe_load",
    "np.load",
    "numpy.load",
    "np.loadtxt",
    "np.fromfile",
    "np.frombuffer",
    "np.memmap",
    "open_memmap",
    "csv.reader",
    "csv.DictReader",
    "gzip.open",
    "gzip.decompress",
    "zipfile.ZipFile",
    "TFRecordDataset",
    "parse_example",
    "Example.FromString",
    "lmdb.open",
    "h5py.File",
    "parquet.read_table",
    "feather.read_table",
    "pstats.Stats",
    "marshal.load",
    "pickle.load",
    "pickle.loads",
    "raw_decode",
    "os.pread",
    "os.preadv",
    "readinto",
    "tarfile.open",
    "read_sidecar",
    "tf.io.decode_jpeg",
    "noted_checksum",
    "open_whole",
}


def reading_calls():
    """{module:function} of every reading call in scripts/."""
    found = set()
    for path in ours(SCRIPTS.rglob("*.py")):
        module = ".".join(path.relative_to(SCRIPTS).with_suffix("").parts)
        found |= {f"{module}:{function}" for function in _in(ast.parse(path.read_text(encoding="utf-8")), "")}
    return found


def _in(node, function):
    """The functions in which a reading call stands."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from _in(child, f"{function}.{child.name}" if function else child.name)
            continue
        if isinstance(child, ast.Call) and _reads(ast.unparse(child.func), child):
            yield function or "<module>"
        yield from _in(child, function)


def _reads(name, call):
    if name == "open":
        mode = next((each.value for each in call.args[1:2] if isinstance(each, ast.Constant)), "r")
        return not set(mode) & set("wax")
    return any(f".{name}".endswith(f".{each}") for each in READING)


KERNEL = "a file of the kernel"
PROGRAM = "a part of the program"
BYTES = "only copied, searched for a word, or digested"
MEMORY = "what another process of the study says, or its own text in memory"
WRITES = "it writes; what it reads is its own"
ONCE = "a measurement writes this file, reads it once and removes it; its shape is checked"
THROUGH = "it calls a reader that is listed, and adds nothing"
AGAIN = "a cache: what cannot be read is computed again"
NOT_FUZZED = {
    **dict.fromkeys(
        (
            "study.core.boot:boot_id",
            "study.core.cores:contents",
            "study.core.locks:note_of",
            "study.machines.limits.base:contents",
            "study.core.provenance:_cpu_model",
            "study.instruments.cpu_time:_of_thread_s",
            "study.instruments.heartbeats:_bytes_read",
            "study.instruments.io_counters:_counters",
            "study.instruments.background:tells_others",
            "study.instruments.memory:peak_memory_mb",
            "study.instruments.power.sensors.cray:_value",
            "study.instruments.power.sensors.grace:_reader",
            "study.instruments.power.sensors.grace:find",
            "study.instruments.power.sensors.intel_gpu:_reader",
            "study.instruments.power.sensors.occ:_reader",
            "study.instruments.power.sensors.rapl:_identity",
            "study.instruments.power.sensors.rapl:_parent",
            "study.instruments.power.sensors.rapl:_zone",
            "study.instruments.traffic:_core_ticks",
            "study.launch.run_directory:_at_work_in",
            "study.machines.guard:_descendants",
            "study.machines.probe:_cpu_model",
            "study.machines.probe:answer",
            "study.training.binding:numa_node",
            "study.training.process_tree:_stat",
            "study.training.process_tree:killed_for_memory",
            "study.training.process_tree:peak_mb",
            "study.ensembles.ring:_has_ended",
        ),
        KERNEL,
    ),
    **dict.fromkeys(
        (
            "study.core.code_version:_collect_module",
            "study.core.code_version:_reader",
            "study.core.code_version:_source",
            "pack_wheels:asked",
            "pack_wheels:constraints",
            "patch_horovod:main",
            "make_reference:main",
            "study.report.editor_schemas:_with_programs",
            "study.report.editor_schemas:with_schema",
            "study.core.fields:sections",
            "study.report.command_lines:_laboratory",
            "study.core.script_options:of_script",
            "study.launch.gpu_check.benchmarks:_published",
            "study.report.command_lines:_targets",
            "study.report.page.assets:_bundled",
            "study.report.page.assets:_own",
            "study.report.exports.ro_crate:metadata",
        ),
        PROGRAM,
    ),
    **dict.fromkeys(
        (
            "study.core.environment:_of_files",
            "study.core.files:sha256",
            "study.workloads.command.content:_packages_of_image",
            "study.core.files:was_changed",
            "study.data.unchanged:check_data",
            "study.data.unchanged:check_source",
            "study.core.files:written_aside",
            "study.core.archive:write",
            "pack_wheels:slim",
            "study.machines.open_mpi:_names_mpi",
            "study.data.download:md5",
            "study.data.page_cache:drop",
            "study.data.page_cache:share_in_memory",
            "study.data.page_cache:warm",
            "study.data.read_test:_plain",
            "study.launch.launch:_last_lines",
            "study.launch.own_name:made_known",
            "study.launch.run_directory:_keep_timeline",
            "study.machines.batch_systems.cobalt:Cobalt.record",
            "study.machines.batch_systems.jobs:_at_work",
            "study.machines.batch_systems.jobs:_own_exit_code",
            "study.machines.batch_systems.jobs:_write_script",
            "study.machines.probe:_code",
            "study.machines.probe:_digest",
            "study.report.page.embedding:Embedding._data",
            "study.report.page.files:digest",
            "study.core.installed:other_lock",
            "study.training.node_copies:NodeCopies._copy",
            "study.training.node_copies:_size_and_crc",
            "study.workloads.command.code_files:contents",
        ),
        BYTES,
    ),
    **dict.fromkeys(
        (
            "check_models:main",
            "study.launch.gpu_check.children:_answer",
            "study.launch.gpu_check.children:shown",
            "study.launch.gpu_check.project_study:_reason",
            "study.launch.gpu_check.results:table_rows",
            "study.launch.gpu_check.small_study:_tell_findings",
            "study.launch.gpu_check.results:read",
            "study.launch.run_limits:_Holder._answer",
            "study.machines.limits.holder:_order",
            "study.data.loader_timing:_in_new_process",
            "study.launch.model_checks:_asked",
            "study.backends.few_samples:few_samples",
            "study.backends.pytorch.operations:TorchProfiler.found",
            "study.backends.tensorflow.operations:TensorFlowProfiler.found",
            "study.training.program:Program._line",
            "study.workflow.passes:all_of",
            "study.training.program:Program._meeting",
            "study.training.program_results:_with_earlier",
            "study.training.program_results:assemble",
            "study.workloads.command.content:_asked",
            "study.data.read_test:_fio",
            "study.data.text_table:line_feeds",
            "study.data.arrow_blocks:_without_plus",
            "study.instruments.calibration:measure",
            "study.core.files:write_sealed",
            "study.instruments.power.sampling:_answer",
            "study.instruments.power.sampling:_is_sampled",
            "study.instruments.power.sampling:of_process",
            "study.launch.spots:_told",
            "study.launch.spots:from_text",
            "study.machines.guard:_order",
            "study.machines.machine_lock:_alone_there",
            "study.machines.machine_lock:main",
            "study.machines.host_check:_conversation",
            "study.machines.probe:main",
            "study.machines.remote:sent",
            "study.communication.roles:Place.own",
            "study.communication.rendezvous:join",
            "study.communication.rendezvous:_awaited",
            "study.communication.rendezvous:_gathered",
            "study.ensembles.ring:Ring.__init__",
            "study.ensembles.ring:shared",
            "study.experiment.ensemble:members_of",
            "study.launch.batch_job:BatchJob.read",
        ),
        MEMORY,
    ),
    **dict.fromkeys(
        (
            "study.data.formats:_write_hdf5",
            "study.data.formats:_write_lmdb",
            "study.data.images.formats:LMDB.write",
            "study.data.images.synthetic:Images.blocks",
            "study.data.matrix_file:create",
            "study.data.matrix_file:opened",
            "study.training.checkpoints:Writer._write",
        ),
        WRITES,
    ),
    **dict.fromkeys(
        (
            "study.data.formats:_read_feather",
            "study.data.formats:_read_hdf5",
            "study.data.formats:_read_npy",
            "study.data.formats:_read_parquet",
        ),
        ONCE,
    ),
    **dict.fromkeys(
        (
            "study.data.lmdb_file:open_whole",
            "study.report.exports.ro_crate:_rows",
            "study.report.exports.declared:_of_run",
            "study.report.exports.mlflow:_of_findings",
            "study.report.exports.mlflow:_of_epochs",
            "study.report.exports.mllog:_of_epochs",
            "study.report.exports.mllog:_of_results",
            "study.report.exports.mllog:_status",
            "study.records.record:_limits",
            "study.records.checked_records:CheckedRecords.read",
            "study.records.checked_records:note_new",
            "study.records.renewal:_update",
            "study.records.renewal:current_record",
            "fit_scalers:main",
            "scale_file:main",
            "study.core.checked:load_json",
            "study.core.csv_files:rows_of",
            "study.core.csv_files:text_of",
            "launch_training:_tell_patterns",
            "study.report.trace:_hosts",
            "study.report.trace:_of_epochs",
            "study.core.csv_files:read_csv",
            "study.core.csv_files:read_rows",
            "study.core.files:parsed_json",
            "study.core.files:json_in",
            "study.core.files:known_json",
            "study.core.files:read_json",
            "study.core.files:read_text",
            "study.ensembles.members_table:write",
            "study.ensembles.votes:join",
            "study.data.download:fetch",
            "study.backends.tensorflow.image_timing:measure",
            "study.data.loader_timing:_described",
            "study.data.loaders:check_columns",
            "study.launch.launch:_data",
            "study.workloads.images.__init__:ImageWorkload.open",
            "study.plan:check_downloads",
            "study.plan:check_read",
            "study.training.staging:_empty",
            "study.training.staging:_table",
            "study.experiment.walltimes:Limits._finished",
            "study.launch.launch:set_aside",
        ),
        THROUGH,
    ),
    "study.core.code_version:_known": AGAIN,
    "study.records.checked_records:_noted": AGAIN,
    "study.report.exports.openmetrics:_epoch": "numbers by a pattern in the last bytes of a log; without a match, none",
    "study.machines.limits.holder:_journal": "a damaged one is told, and nothing is put back from it",
    "study.core.files:seal_of": "the checksum in a file that a reader of sealed files has read; none of a damaged one",
    "study.core.files:seal_at_end": "as seal_of; the end of a file that a reader of sealed files has read",
    "study.core.files:replaced_since_read": "a note of checksums: one that is damaged is none, and nothing is compared",
    "study.data.source_state:_sample": "bytes for a digest: any are right",
}
