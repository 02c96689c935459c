# Dataset -> loading measurement: every loader on every file, alternating, nothing else running.


rule measure_loading:
    input:
        lambda wildcards: PLAN.list_loading_inputs(wildcards),
    output:
        LOADING,
    log:
        f"{RESULTS}/logs/loading/{{benchmark}}/{{dataset}}/{{measurement}}.log",
    retries: PLAN.retries
    group:
        PLAN.group
    conda:
        ENVIRONMENT
    threads: PLAN.timed_threads
    resources:
        **PLAN.make_loading_resources(),
    params:
        files=lambda wildcards: to_json(inputs.describe_loading_files(PLAN.get_measurement(wildcards), DATA)),
        loaders=lambda wildcards: PLAN.get_measurement(wildcards).loaders,
        page_caches=lambda wildcards: PLAN.get_measurement(wildcards).page_caches,
        repeats=lambda wildcards: PLAN.get_measurement(wildcards).repeats,
        machine=MACHINE["name"],
        on_a_node=launchers.make_node_prefix(MACHINE),
    message:
        "Time the loaders on {wildcards.benchmark}, dataset {wildcards.dataset}"
    shell:
        '{params.on_a_node} python "$SCRIPTS/measure_loading.py" --files {params.files:q} --loader {params.loaders:q}'
        " --page-cache {params.page_caches:q} --repeats {params.repeats:q} --machine {params.machine:q}"
        " --benchmark {wildcards.benchmark:q} --dataset {wildcards.dataset:q} --output {output:q} 2>&1 | tee {log:q}"
