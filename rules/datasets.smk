# Dataset -> converted dataset. The versions stand for the code: a new one makes the files, and all that follows, anew.

from study.data import conversion, feature_scaling
from study.data.images import conversion as images
from study.experiment import run_order
from study.machines import storage


rule fetch_dataset:
    output:
        f"{DATA}/raw/{{benchmark}}/{{dataset}}/{{name}}",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/fetch_{{name}}.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        # No param: with another server the files are the same, and are not fetched again.
        origin=lambda wildcards: as_json(PLAN.dataset_of(wildcards).origin),
    params:
        definition=lambda wildcards: as_json(PLAN.dataset_of(wildcards).definition),
        version=lambda wildcards: PLAN.dataset_of(wildcards).generator_version,
        checksum=lambda wildcards: PLAN.dataset_of(wildcards).checksum(
            DATA, PLAN.dataset_of(wildcards).file_named(wildcards.name)
        ),
        file=lambda wildcards: PLAN.dataset_of(wildcards).file_named(wildcards.name),
    message:
        "Fetch {wildcards.benchmark} {wildcards.name}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/fetch_dataset.py" --benchmark {wildcards.benchmark:q} --file {params.file:q}'
        " --definition {params.definition:q} --origin {resources.origin:q} --checksum {params.checksum:q}"
        " --output {output:q} 2>&1 | tee {log:q}"


rule convert_dataset:
    input:
        lambda wildcards: PLAN.dataset_of(wildcards).raw(DATA, wildcards.file),
    output:
        matrix=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.npy",
        sidecar=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.json",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/convert_{{file}}.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        # No param: a file of an older version has none, and is not converted again for it.
        checksum=lambda wildcards: PLAN.dataset_of(wildcards).checksum(DATA, wildcards.file),
    params:
        # With the token of the file's state, if the file is another than that of the first conversion.
        expected=lambda wildcards: inputs.expected_options(PLAN.dataset_of(wildcards), wildcards.file, DATA),
        form=lambda wildcards: as_json(PLAN.dataset_of(wildcards).spec["files"][wildcards.file]),
        version=lambda wildcards: conversion.version(PLAN.dataset_of(wildcards).spec["files"][wildcards.file]),
    message:
        "Convert {wildcards.benchmark} {wildcards.file}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/convert_dataset.py" {input:q} --matrix {output.matrix:q} --sidecar {output.sidecar:q}'
        " --form {params.form:q} {params.expected} --checksum {resources.checksum:q} 2>&1 | tee {log:q}"


rule convert_images:
    input:
        lambda wildcards: inputs.image_files(PLAN.dataset_of(wildcards), DATA, wildcards.file),
    output:
        folder=directory(f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.{{format}}"),
        sidecar=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.{{format}}.json",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/convert_{{file}}_{{format}}.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    params:
        source=lambda wildcards: as_json(
            inputs.image_param(PLAN.dataset_of(wildcards), DATA, wildcards.file, wildcards.format)
        ),
        images=lambda wildcards: as_json(inputs.image_options(PLAN.dataset_of(wildcards), wildcards.file)),
        version=images.CONVERTER_VERSION,
    message:
        "Convert {wildcards.benchmark} {wildcards.file} to {wildcards.format}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/convert_images.py" --source {params.source:q} --format {wildcards.format:q}'
        " --folder {output.folder:q} --sidecar {output.sidecar:q} --images {params.images:q} 2>&1 | tee {log:q}"


rule fit_scalers:
    input:
        lambda wildcards: inputs.scaler_files(PLAN.dataset_of(wildcards), DATA).values(),
    output:
        f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.npz",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/fit_scalers.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    params:
        files=lambda wildcards: as_json(inputs.scaler_files(PLAN.dataset_of(wildcards), DATA)),
        version=feature_scaling.SCALING_VERSION,
    message:
        "Fit the scalers of {wildcards.benchmark}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/fit_scalers.py" --benchmark {wildcards.benchmark:q} --files {params.files:q}'
        " --output {output:q} 2>&1 | tee {log:q}"


rule scale_file:
    input:
        matrix=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.npy",
        sidecar=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{file}}.json",
        scalers=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.npz",
    output:
        numbers=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/{{file}}.npy",
        codes=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/{{file}}.codes.npy",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/scale_{{file}}.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    params:
        version=feature_scaling.SCALING_VERSION,
    message:
        "Scale {wildcards.benchmark} {wildcards.file}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/scale_file.py" {wildcards.file:q} {input.matrix:q} {input.sidecar:q}'
        " --scalers {input.scalers:q} --output {output.numbers:q} --codes {output.codes:q} 2>&1 | tee {log:q}"


# To the machine's shared storage, for runs that read from there; files and, in two rules, folders of files. A copy gets
# its name when it is whole: of one that was cut off, Snakemake would keep what is there (profiles/default).
for storage_name, storage_folder in storage.folders(MACHINE).items():

    rule:
        name:
            f"copy_to_{storage_name}"
        input:
            f"{DATA}/{{path}}",
        output:
            f"{storage_folder}/{{path}}",
        wildcard_constraints:
            path=r"(raw/.+|(converted|scaled)/.+\.(npy|json|npz))",
        priority: run_order.PREPARE
        localrule: True
        message:
            "Copy {wildcards.path}"
        shell:
            "cp {input:q} {output:q}.part && mv {output:q}.part {output:q}"

    rule:
        name:
            f"copy_folder_to_{storage_name}"
        input:
            f"{DATA}/{{path}}",
        output:
            directory(f"{storage_folder}/{{path}}"),
        wildcard_constraints:
            path=r"converted/[^/]+/[^/]+/[a-z0-9_]+\.(?!npy$|json$)[a-z_]+",
        priority: run_order.PREPARE
        localrule: True
        message:
            "Copy {wildcards.path}"
        shell:
            "rm -rf {output:q}.part && cp -r {input:q} {output:q}.part && mv -T {output:q}.part {output:q}"


# Copies with Lustre's stripes, for runs with `lustre_stripes`.
for striped_folder, stripes in PLAN.striped.items():

    rule:
        name:
            f"stripe_{stripes}_{list(PLAN.striped).index(striped_folder)}"
        input:
            f"{DATA}/{{path}}",
        output:
            f"{striped_folder}/{{path}}",
        wildcard_constraints:
            path=r"(raw/.+|(converted|scaled)/.+\.(npy|json|npz))",
        priority: run_order.PREPARE
        localrule: True
        params:
            stripes=stripes,
        message:
            "Copy {wildcards.path} over {params.stripes} stripes"
        shell:
            "rm -f {output:q}.part && lfs setstripe -c {params.stripes:q} {output:q}.part"
            " && cp {input:q} {output:q}.part && mv {output:q}.part {output:q}"

    rule:
        name:
            f"stripe_folder_{stripes}_{list(PLAN.striped).index(striped_folder)}"
        input:
            f"{DATA}/{{path}}",
        output:
            directory(f"{striped_folder}/{{path}}"),
        wildcard_constraints:
            path=r"converted/[^/]+/[^/]+/[a-z0-9_]+\.(?!npy$|json$)[a-z_]+",
        priority: run_order.PREPARE
        localrule: True
        params:
            stripes=stripes,
        message:
            "Copy {wildcards.path} over {params.stripes} stripes"
        shell:
            "rm -rf {output:q}.part && mkdir {output:q}.part && lfs setstripe -c {params.stripes:q} {output:q}.part"
            " && cp -r {input:q}/. {output:q}.part && mv -T {output:q}.part {output:q}"
