# Dataset -> converted dataset. Names of converted and scaled files have a digest of their definition and of the versions
# of the code: with another one, the files are made anew. Their sidecars say the same.

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
        # No param: other studies share the file. The step reads the server from the study, since it may have a secret.
        study=STUDY.name,
    params:
        definition=lambda wildcards: to_json(PLAN.get_dataset(wildcards).definition),
        version=lambda wildcards: PLAN.get_dataset(wildcards).generator_version,
        checksum=lambda wildcards: PLAN.get_dataset(wildcards).locate_checksum(
            DATA, PLAN.get_dataset(wildcards).find_file(wildcards.name)
        ),
        file=lambda wildcards: PLAN.get_dataset(wildcards).find_file(wildcards.name),
    message:
        "Fetch {wildcards.benchmark} {wildcards.name}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/fetch_dataset.py" --benchmark {wildcards.benchmark:q} --file {params.file:q}'
        " --definition {params.definition:q} --study {resources.study:q} --dataset {wildcards.dataset:q}"
        " --checksum {params.checksum:q} --output {output:q} 2>&1 | tee {log:q}"


rule convert_dataset:
    input:
        lambda wildcards: PLAN.list_conversion_inputs(wildcards),
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
        # No param: that a file has a checksum now does not convert it again.
        checksum=lambda wildcards: PLAN.get_dataset(wildcards).locate_checksum(DATA, wildcards.file),
    params:
        # With the token of the file's state, if the file is another than that of the first conversion.
        expected=lambda wildcards: inputs.build_shape_options(PLAN.get_dataset(wildcards), wildcards.file, DATA),
        form=lambda wildcards: to_json(PLAN.get_dataset(wildcards).spec["files"][wildcards.file]),
    message:
        "Convert {wildcards.benchmark} {wildcards.file}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/convert_dataset.py" {input:q} --matrix {output.matrix:q} --sidecar {output.sidecar:q}'
        " --form {params.form:q} {params.expected} --checksum {resources.checksum:q} 2>&1 | tee {log:q}"


rule convert_images:
    input:
        lambda wildcards: PLAN.list_conversion_inputs(wildcards, wildcards.format),
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
        source=lambda wildcards: to_json(
            inputs.build_image_param(PLAN.get_dataset(wildcards), DATA, wildcards.file, wildcards.format)
        ),
        images=lambda wildcards: to_json(inputs.build_image_options(PLAN.get_dataset(wildcards), wildcards.file)),
    message:
        "Convert {wildcards.benchmark} {wildcards.file} to {wildcards.format}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/convert_images.py" --source {params.source:q} --format {wildcards.format:q}'
        " --folder {output.folder:q} --sidecar {output.sidecar:q} --images {params.images:q} 2>&1 | tee {log:q}"


rule fit_scalers:
    input:
        lambda wildcards: PLAN.list_scaling_inputs(wildcards),
    output:
        scalers=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.npz",
        sidecar=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.json",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/fit_scalers.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    params:
        files=lambda wildcards: to_json(inputs.list_scaler_files(PLAN.get_dataset(wildcards), DATA)),
    message:
        "Fit the scalers of {wildcards.benchmark}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/fit_scalers.py" --benchmark {wildcards.benchmark:q} --files {params.files:q}'
        " --output {output.scalers:q} --sidecar {output.sidecar:q} 2>&1 | tee {log:q}"


rule scale_file:
    input:
        unpack(lambda wildcards: PLAN.get_file_to_scale(wildcards)),
        scalers=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.npz",
        fitted_on=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/scalers.json",
    output:
        numbers=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/{{file}}.npy",
        codes=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/{{file}}.codes.npy",
        sidecar=f"{DATA}/scaled/{{benchmark}}/{{dataset}}/{{file}}.json",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/scale_{{file}}.log",
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "Scale {wildcards.benchmark} {wildcards.file}, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/scale_file.py" {wildcards.file:q} {input.matrix:q} {input.sidecar:q}'
        " --scalers {input.scalers:q} --fitted-on {input.fitted_on:q} --output {output.numbers:q}"
        " --codes {output.codes:q} --scaled-sidecar {output.sidecar:q} 2>&1 | tee {log:q}"


# To the machine's shared storage, for runs that read from there; files and, in two rules, folders of files. A copy gets
# its name when it is whole: of one that was cut off, Snakemake would keep what is there (profiles/default).
for storage_name, storage_folder in storage.list_folders(MACHINE).items():

    rule:
        name:
            f"copy_to_{storage_name}"
        input:
            lambda wildcards, folder=storage_folder: PLAN.list_files_to_copy(folder, wildcards.path),
        output:
            f"{storage_folder}/{{path}}",
        wildcard_constraints:
            path=r"(raw/.+|(converted|scaled)/.+\.(npy|json|npz))",
        priority: run_order.PREPARE
        localrule: True
        message:
            "Copy {wildcards.path}"
        shell:
            'python "$SCRIPTS/copy_data.py" {input:q} {output:q}'

    rule:
        name:
            f"copy_folder_to_{storage_name}"
        input:
            lambda wildcards, folder=storage_folder: PLAN.list_files_to_copy(folder, wildcards.path),
        output:
            directory(f"{storage_folder}/{{path}}"),
        wildcard_constraints:
            path=r"converted/[^/]+/[^/]+/[a-z0-9_]+\.(?!npy$|json$)[a-z_]+",
        priority: run_order.PREPARE
        localrule: True
        message:
            "Copy {wildcards.path}"
        shell:
            'python "$SCRIPTS/copy_data.py" {input:q} {output:q}'


# Copies with Lustre's stripes, for runs with `lustre_stripes`.
for striped_folder, stripes in PLAN.striped.items():

    rule:
        name:
            f"stripe_{stripes}_{list(PLAN.striped).index(striped_folder)}"
        input:
            lambda wildcards, folder=striped_folder: PLAN.list_files_to_copy(folder, wildcards.path),
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
            lambda wildcards, folder=striped_folder: PLAN.list_files_to_copy(folder, wildcards.path),
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
