# Tidy tables and published values -> the paper's tables and figures, and the report's first page.


rule make_table:
    input:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
        published=paths.published(workflow.basedir),
    output:
        csv=f"{RESULTS}/tables/{{table}}.csv",
        markdown=f"{RESULTS}/tables/{{table}}.md",
        latex=f"{RESULTS}/tables/{{table}}.tex",
        html=report(
            f"{RESULTS}/tables/{{table}}.html",
            category="Tables",
            caption="report/result.rst",
            labels=lambda wildcards: {"name": wildcards.table, "shows": TABLES[wildcards.table].title},
        ),
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        caption=lambda wildcards: TABLES[wildcards.table].look_for,
        paper=as_json(definition.paper_workloads(STUDY)),
        code=code_version.digest("make_table.py"),
    message:
        "Table {wildcards.table}"
    shell:
        'python "$SCRIPTS/make_table.py" --table {wildcards.table} --study {params.study} --runs {input.runs:q}'
        " --loading {input.loading:q} --csv {output.csv:q} --markdown {output.markdown:q} --latex {output.latex:q}"
        " --html {output.html:q} 2>&1 | tee {log:q}"


rule make_figure:
    input:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
        activity=lambda wildcards: TRACED if describe(wildcards.figure).is_timeline else [],
        published=paths.published(workflow.basedir),
    output:
        svg=report(
            f"{RESULTS}/figures/{{figure}}.svg",
            category="Figures",
            caption="report/result.rst",
            labels=lambda wildcards: {"name": wildcards.figure, "shows": describe(wildcards.figure).title},
        ),
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        caption=lambda wildcards: describe(wildcards.figure).caption,
        description=lambda wildcards: as_json(dataclasses.asdict(describe(wildcards.figure))),
        code=code_version.digest("make_figure.py"),
    message:
        "Figure {wildcards.figure}"
    shell:
        'python "$SCRIPTS/make_figure.py" --figure {wildcards.figure} --study {params.study} --runs {input.runs:q}'
        " --loading {input.loading:q} --svg {output.svg:q} --pdf {output.pdf:q} 2>&1 | tee {log:q}"


rule make_overview:
    input:
        runs=f"{RESULTS}/runs.csv",
        loading=f"{RESULTS}/loading.csv",
    output:
        report(
            f"{RESULTS}/overview.html",
            category="About this study",
            caption="report/overview.rst",
            labels={"name": "overview", "shows": "Machine, failures, every run"},
        ),
    log:
        f"{RESULTS}/logs/make_overview.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        descriptions=[STUDY.description, MACHINE["description"]],
        code=code_version.digest("make_overview.py"),
    message:
        "The report's first page"
    shell:
        'python "$SCRIPTS/make_overview.py" --study {params.study} --machine {params.machine} --runs {input.runs:q}'
        " --loading {input.loading:q} --output {output:q} 2>&1 | tee {log:q}"
