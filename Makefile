# make study and make test do all the set-up; snakemake, from .venv/bin, is the real interface.
PYTHON ?= python3.11
export PYTHON
BIN := .venv/bin
HERE = $(if $(wildcard $(BIN)/python),$(BIN)/python,python)  # where an environment of conda is active, there is no .venv
BY_FILE := --dist loadfile --no-loadscope-reorder  # a file's tests on one worker, tests/unit first

.PHONY: study report test quick status recommend tune check bench aa faults chaos load setup lock format reference docs docs-links

study: setup  ## run the study STUDY on this machine, the default one if none is given, and print its findings
	$(BIN)/snakemake --profile profiles/local $(if $(STUDY),--config study=$(STUDY))
	@$(BIN)/python scripts/show_findings.py $(if $(STUDY),--study $(STUDY))

report:  ## where the report of the study STUDY on MACHINE is, one HTML page; starts no run
	@$(HERE) scripts/show_report.py $(if $(STUDY),--study $(STUDY)) $(if $(MACHINE),--machine $(MACHINE))

test: setup  ## all tests but those marked full; three workers for two cores, as some tests wait; timed tests run alone; twenty minutes
	$(BIN)/python -m pytest -n 3 $(BY_FILE)

quick: setup  ## the unit tests that are not marked slow; a minute
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" tests/unit

ifneq ($(study)$(machine)$(goal),)
$(error write STUDY=, MACHINE= and GOAL= in capitals)
endif

status:  ## how far the study STUDY is on MACHINE, the configured ones by default
	@$(HERE) scripts/show_status.py $(if $(STUDY),--study $(STUDY)) $(if $(MACHINE),--machine $(MACHINE))

recommend:  ## predict other rank counts of the study STUDY on MACHINE, and recommend one for GOAL; starts no run
	@$(HERE) scripts/recommend.py $(if $(STUDY),--study $(STUDY)) $(if $(MACHINE),--machine $(MACHINE)) \
	  $(if $(GOAL),--goal $(GOAL))

tune:  ## which switch of the study STUDY on MACHINE is worth turning, picked and confirmed on separate blocks; starts no run
	@$(HERE) scripts/tune.py $(if $(STUDY),--study $(STUDY)) $(if $(MACHINE),--machine $(MACHINE))

check:  ## compare the latest runs of STUDY on MACHINE with its performance references; ACCEPT=1 makes them the reference
	@$(BIN)/python scripts/check.py $(if $(STUDY),--study $(STUDY)) $(if $(MACHINE),--machine $(MACHINE)) \
	  $(if $(ACCEPT),--accept)

bench: setup  ## what our own loaders and measurements gain and cost
	PYTHONPATH=tests/workflow:tests/unit $(BIN)/python performance/bench.py

aa: setup  ## A/A test of the comparison of arms, and a slow-down of known size; resumes where it stopped; planned for an hour
	$(BIN)/python performance/aa.py

faults: setup  ## inject dozens of faults into real runs, files and downloads; each must end as expected
	PYTHONPATH=tests/faults:tests/workflow $(BIN)/python performance/faults.py

chaos: setup  ## ROUNDS rounds from seed SEED: a small study runs while several faults strike at once; a minute each, resumes
	PYTHONPATH=tests/faults:tests/workflow $(BIN)/python performance/chaos.py --seed $(or $(SEED),1) --rounds $(or $(ROUNDS),10)

load: setup  ## a thousand points through a stand-in for a batch system; kills Snakemake three times; about an hour
	PYTHONPATH=tests/workflow $(BIN)/python performance/load.py

setup:  ## the environment in .venv, and bytecode: Python keeps none where PYTHONDONTWRITEBYTECODE is set
	@scripts/setup.sh
	@$(BIN)/python -m compileall -q scripts

lock: setup  ## envs/requirements.lock, anew from envs/requirements.in
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 envs/requirements.in --output-file envs/requirements.lock

format: setup  ## put code and rules into their standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

reference: setup  ## docs/reference, from the declarations in the code
	$(BIN)/python scripts/make_reference.py

docs: setup  ## the documentation site, docs/_build/html/index.html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/trees docs docs/_build/html

docs-links: setup  ## check the links of the documentation that lead elsewhere; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck -d docs/_build/trees docs docs/_build/links
