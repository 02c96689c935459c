# Tidy tables and published values -> the paper's tables.


rule make_table:
    input:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
        published=paths.published(workflow.basedir),
    output:
        csv=f"{RESULTS}/tables/{{table}}.csv",
        markdown=f"{RESULTS}/tables/{{table}}.md",
        latex=f"{RESULTS}/tables/{{table}}.tex",
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        code=code_version.digest("make_table.py"),
    message:
        "Table {wildcards.table}"
    shell:
        'python "$SCRIPTS/make_table.py" --table {wildcards.table} --study {params.study} --runs {input.runs:q} --loading {input.loading:q}'
        " --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q} 2>&1 | tee {log:q}"
