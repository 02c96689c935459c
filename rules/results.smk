# Records and published values -> the paper's tables and figures and the findings, each from the runs that it uses, and
# the report.

import dataclasses

from study.core import code_version
from study.experiment import run_order
from study.records import table_inputs
from study.records.stamp import stamp
from study.report import sources
from study.report.figures.description import load_description
from study.report.findings import declaration
from study.report.page import files as page_files
from study.report.tables import TABLES
from study.report.tables.declared import load_declarations


rule make_table:
    input:
        unpack(lambda wildcards: PLAN.list_result_inputs(sources.select_table_sources, wildcards.table)),
        updated=ancient(PLAN.updated),
        published=paths.list_published_files(paths.ROOT),
    output:
        csv=f"{OF_STUDY}/tables/{{table}}.csv",
        markdown=f"{OF_STUDY}/tables/{{table}}.md",
        latex=f"{OF_STUDY}/tables/{{table}}.tex",
        html=report(
            f"{OF_STUDY}/tables/{{table}}.html",
            category="Tables",
            caption="report/result.rst",
            labels=lambda wildcards: {"name": wildcards.table, "shows": TABLES[wildcards.table].title},
        ),
    log:
        f"{OF_STUDY}/logs/tables/{{table}}.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        caption=lambda wildcards: TABLES[wildcards.table].look_for,
        rows=lambda wildcards: PLAN.describe_rows(sources.select_table_sources, wildcards.table),
        paper=lambda wildcards: PLAN.paper_workloads,
        declared=lambda wildcards: PLAN.paper_values,
        declaration=lambda wildcards: to_json(load_declarations().get(wildcards.table)),
        code=code_version.digest_step_code("make_table"),
    message:
        "Table {wildcards.table}"
    shell:
        'python "$SCRIPTS/make_table.py" --table {wildcards.table:q} --study {params.study:q} --csv {output.csv:q}'
        " --markdown {output.markdown:q} --latex {output.latex:q} --html {output.html:q} 2>&1 | tee {log:q}"


rule make_figure:
    input:
        unpack(lambda wildcards: PLAN.list_result_inputs(sources.select_figure_sources, wildcards.figure)),
        updated=ancient(PLAN.updated),
        published=paths.list_published_files(paths.ROOT),
    output:
        svg=report(
            f"{OF_STUDY}/figures/{{figure}}.svg",
            category="Figures",
            caption="report/result.rst",
            labels=lambda wildcards: {"name": wildcards.figure, "shows": load_description(wildcards.figure).title},
        ),
        pdf=f"{OF_STUDY}/figures/{{figure}}.pdf",
    log:
        f"{OF_STUDY}/logs/figures/{{figure}}.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        caption=lambda wildcards: load_description(wildcards.figure).caption,
        rows=lambda wildcards: PLAN.describe_rows(sources.select_figure_sources, wildcards.figure),
        description=lambda wildcards: to_json(dataclasses.asdict(load_description(wildcards.figure))),
        declaration=lambda wildcards: to_json(load_declarations().get(load_description(wildcards.figure).kind)),  # of its table
        code=code_version.digest_step_code("make_figure"),
    message:
        "Figure {wildcards.figure}"
    shell:
        'python "$SCRIPTS/make_figure.py" --figure {wildcards.figure:q} --study {params.study:q} --svg {output.svg:q}'
        " --pdf {output.pdf:q} 2>&1 | tee {log:q}"


rule make_findings:
    input:
        lambda wildcards: PLAN.list_outcomes(PLAN.of_findings.runs),
        ancient(PLAN.updated),
    output:
        json=f"{OF_STUDY}/findings.json",
        markdown=f"{OF_STUDY}/findings.md",
    log:
        f"{OF_STUDY}/logs/make_findings.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        declared=lambda wildcards: to_json({name: declaration.read_content(name) for name in STUDY.findings}),
        # What the study makes: a finding names a figure or table only if it is there.
        shown=[*STUDY.tables, *STUDY.figures],
        rows=lambda wildcards: to_json(table_inputs.collect_other_inputs(PLAN.of_findings.runs, (), MACHINE)),
        code=code_version.digest_step_code("make_findings"),
    message:
        "The findings of {config[study]} on {config[machine]}"
    shell:
        'python "$SCRIPTS/make_findings.py" --study {params.study:q} --json {output.json:q}'
        " --markdown {output.markdown:q} 2>&1 | tee {log:q}"


rule show_early:
    input:
        lambda wildcards: PLAN.list_outcomes(PLAN.list_runs_until(int(wildcards.block))),
    output:
        f"{OF_STUDY}/logs/shown_after_block_{{block}}",
    log:
        f"{OF_STUDY}/logs/show_early_{{block}}.log",
    wildcard_constraints:
        block="[0-9]+",
    # Before the next run, and not beside it.
    priority: run_order.PREPARE
    localrule: True
    conda:
        ENVIRONMENT
    threads: PLAN.timed_threads
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        report=f"{OF_STUDY}/report.html",
        shows="report" if STUDY.findings else "table",
    message:
        "What {config[study]} has found after block {wildcards.block}"
    shell:
        'python "$SCRIPTS/show_early.py" --study {params.study:q} --machine {params.machine:q}'
        " --block {wildcards.block:q} --report {params.report:q} --output {output:q} --shows {params.shows:q} 2>&1 | tee {log:q}"


rule make_report:
    input:
        runs=f"{OF_STUDY}/runs.csv",
        loading=f"{OF_STUDY}/loading.csv",
        attempts=f"{OF_STUDY}/attempts.csv",
        tables=[f"{OF_STUDY}/tables/{table}.{form}" for table in STUDY.tables for form in ("csv", "md")],
        figures=[f"{OF_STUDY}/figures/{figure}.svg" for figure in STUDY.figures],
        findings=[f"{OF_STUDY}/findings.json" for _ in STUDY.findings[:1]],
    output:
        f"{OF_STUDY}/report.html",
    log:
        f"{OF_STUDY}/logs/make_report.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        study=STUDY.name,
        machine=MACHINE["name"],
        descriptions=lambda wildcards: [STUDY.description, MACHINE["description"]],
        figures=lambda wildcards: to_json([dataclasses.asdict(load_description(figure)) for figure in STUDY.figures]),
        # What is shown if it is there.
        optional=lambda wildcards: stamp(page_files.list_optional_files(OF_STUDY)),
        templates=page_files.compute_templates_digest(),
        code=code_version.digest_step_code("make_report"),
    message:
        "The report, one page: {output}"
    shell:
        'python "$SCRIPTS/make_report.py" --study {params.study:q} --machine {params.machine:q}'
        " --output {output:q} 2>&1 | tee {log:q}"
