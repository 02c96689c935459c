# Dataset -> converted dataset. The versions stand for the code: a new one makes the files, and all that follows, anew.


rule fetch_dataset:
    output:
        f"{DATA}/raw/{{benchmark}}/{{dataset}}/{{split}}.csv",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/fetch_{{split}}.log",
    conda:
        ENVIRONMENT
    params:
        definition=lambda wildcards: as_json(dataset_of(wildcards).definition),
        version=synthetic.GENERATOR_VERSION,
        checksum=f"{DATA}/checksums/{{benchmark}}/{{dataset}}/{{split}}.sha256",
    message:
        "Fetch {wildcards.benchmark} {wildcards.split} set, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/fetch_dataset.py" --benchmark {wildcards.benchmark} --split {wildcards.split}'
        " --definition {params.definition:q} --checksum {params.checksum:q} --output {output:q} 2>&1 | tee {log:q}"


rule convert_dataset:
    input:
        lambda wildcards: dataset_of(wildcards).raw(DATA, wildcards.split),
    output:
        matrix=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{split}}.npy",
        sidecar=f"{DATA}/converted/{{benchmark}}/{{dataset}}/{{split}}.json",
    log:
        f"{DATA}/logs/{{benchmark}}/{{dataset}}/convert_{{split}}.log",
    conda:
        ENVIRONMENT
    params:
        expected=lambda wildcards: definition.expected_options(dataset_of(wildcards), wildcards.split),
        version=conversion.CONVERTER_VERSION,
    message:
        "Convert {wildcards.benchmark} {wildcards.split} set, dataset {wildcards.dataset}"
    shell:
        'python "$SCRIPTS/convert_dataset.py" {input:q} --matrix {output.matrix:q} --sidecar {output.sidecar:q}'
        " {params.expected} 2>&1 | tee {log:q}"
