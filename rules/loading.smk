# Dataset -> loading measurement: every loader on every file, alternating, nothing else running.


rule measure_loading:
    input:
        lambda wildcards: inputs.loading_inputs(measurement_of(wildcards), DATA),
    output:
        LOADING,
    log:
        f"{RESULTS}/logs/loading/{{benchmark}}/{{dataset}}/{{measurement}}.log",
    retries: RETRIES
    group:
        lambda wildcards: group_of(LIMITS.of_a_load())
    conda:
        ENVIRONMENT
    threads: TIMED_THREADS
    resources:
        **queues.resources(lambda wildcards: 1, MACHINE, os.environ, lambda wildcards, attempt: MACHINE["time_limit_s"]),
    params:
        files=lambda wildcards: as_json(inputs.loading_files(measurement_of(wildcards), DATA)),
        loaders=lambda wildcards: measurement_of(wildcards).loaders,
        page_caches=lambda wildcards: measurement_of(wildcards).page_caches,
        repeats=lambda wildcards: measurement_of(wildcards).repeats,
        machine=MACHINE["name"],
        on_a_node=launchers.onto_a_node(MACHINE),
    message:
        "Time the loaders on {wildcards.benchmark}, dataset {wildcards.dataset}"
    shell:
        '{params.on_a_node} python "$SCRIPTS/measure_loading.py" --files {params.files:q} --loader {params.loaders:q}'
        " --page-cache {params.page_caches:q} --repeats {params.repeats:q} --machine {params.machine:q}"
        " --benchmark {wildcards.benchmark:q} --dataset {wildcards.dataset:q} --output {output:q} 2>&1 | tee {log:q}"
