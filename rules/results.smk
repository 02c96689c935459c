# Tidy tables and published values -> the paper's tables.


rule make_table:
    message:
        "Table {wildcards.table}"
    input:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
        published=sorted(str(file) for file in (configuration.CONFIG / "published").glob("*.csv")),
    output:
        multiext(f"{RESULTS}/tables/{{table}}", ".csv", ".md", ".tex"),
    params:
        stem=f"{RESULTS}/tables/{{table}}",
        code=code_version.digest("make_table.py"),
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    conda:
        ENVIRONMENT
    shell:
        "python {SCRIPTS}/make_table.py --table {wildcards.table} --runs {input.runs:q} --loading {input.loading:q}"
        " --output {params.stem:q} 2>&1 | tee {log:q}"
