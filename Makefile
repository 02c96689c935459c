# make study and make test do all the set-up; snakemake, from .venv/bin, is the real interface.
export PYTHON
BIN := .venv/bin
# Where an environment of conda is active, there is no .venv.
HERE = $(or $(wildcard $(BIN)/study),$(shell command -v study),$(error run `make setup` first, which makes .venv))
BY_FILE := --dist loadfile --no-loadscope-reorder  # see tests/distribution.py

# $(call option,--study,STUDY): a variable of make's command line as one word. Neither make nor the shell reads its text.
GIVEN := STUDY MACHINE GOAL ACCEPT CASES SEED ROUNDS POINTS ONLY SINCE SLOWED PART MINUTES TAG
unexport $(GIVEN)
one_word = '$(subst ','\'',$(value $(1)))'
option = $(if $(value $(2)),$(1) $(call one_word,$(2)))
# $(call flag,--accept,ACCEPT): 1, or not given.
flag = $(if $(value $(2)),$(if $(filter-out 1,$(value $(2))),$(error write $(2)=1, or leave it out),$(1)))
define NEWLINE


endef
$(foreach name,$(GIVEN),$(if $(findstring $(NEWLINE),$(value $(name))),$(error $(name) must be one line)))

.PHONY: help setup-test setup-docs study report test test-long quick status recommend tune check replicate bench aa faults fuzz cases chaos load soak gpu setup lock format reference advisories licences dist docs docs-links

study: setup  ## run the study STUDY on this machine, the default one if none is given, and print its findings
	@$(BIN)/study run $(call option,--study,STUDY)

report:  ## print the path of the report of the study STUDY on MACHINE, one HTML page; starts no run
	@$(HERE) report $(call option,--study,STUDY) $(call option,--machine,MACHINE)

# Three workers for two cores, because some tests wait.
test: setup-test  ## run all tests that are not marked long or full, by three workers; timed tests run alone, at the end; 15 minutes on two cores
	$(BIN)/python -m pytest -n 3 $(BY_FILE) --durations 40

test-long: setup-test  ## run the tests that are marked long: PART of 7, or all; by default the part of the weekday; begins none after MINUTES
	$(BIN)/python -m pytest -n 3 $(BY_FILE) --durations 40 -m long \
	  --part $(if $(value PART),$(call one_word,PART),today) $(call option,--minutes,MINUTES)

quick: setup-test  ## run the unit tests that are not marked slow; a minute and a half
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long" tests/unit

ifneq ($(value study)$(value machine)$(value goal),)
$(error write STUDY=, MACHINE= and GOAL= in capitals)
endif

status:  ## show the progress of the study STUDY on MACHINE, by default the configured ones
	@$(HERE) status $(call option,--study,STUDY) $(call option,--machine,MACHINE)

recommend:  ## predict other rank counts of the study STUDY on MACHINE, and recommend one for GOAL; starts no run
	@$(HERE) recommend $(call option,--study,STUDY) $(call option,--machine,MACHINE) \
	  $(call option,--goal,GOAL)

tune:  ## print which setting of STUDY on MACHINE is worth changing, picked and confirmed on separate blocks; starts no run
	@$(HERE) tune $(call option,--study,STUDY) $(call option,--machine,MACHINE)

check:  ## compare the latest runs of STUDY on MACHINE with its performance references; ACCEPT=1 makes them the reference
	@$(HERE) check $(call option,--study,STUDY) $(call option,--machine,MACHINE) \
	  $(call flag,--accept,ACCEPT)

replicate: setup  ## run STUDY again from the beginning, TIMES times (8), and test whether the findings' intervals hold; resumes
	@$(BIN)/python scripts/replicate.py $(call option,--study,STUDY) $(call option,--times,TIMES)

bench: setup-test  ## measure what this project's own loaders and measurements gain and cost
	PYTHONPATH=tests/workflow:tests/unit $(BIN)/python performance/bench.py

aa: setup-test  ## test the comparison of arms: A/A test, and a slow-down of known size; resumes where it stopped; about an hour
	$(BIN)/python performance/aa.py

faults: setup-test  ## inject some seventy faults into real runs, files and downloads; each must end as expected; resumes
	PYTHONPATH=tests/faults:tests/workflow $(BIN)/python performance/faults.py \
	  $(call option,--only,ONLY) $(call option,--since,SINCE) $(call flag,--slowed,SLOWED)

fuzz: setup-test  ## damage the files that steps read, in CASES ways, 5,000 by default; each must be refused or read correctly
	PYTHONPATH=tests/fuzz:tests/workflow:tests/unit $(BIN)/python performance/fuzz.py \
	  $(call option,--cases,CASES) $(call option,--seed,SEED)

cases: setup-test  ## rebuild situations that were reported in public, and print the right result and this project's
	$(BIN)/python -m pytest tests/cases -q -m "not full" --case-table docs/cases.csv

chaos: setup-test  ## run a small study ROUNDS times, from seed SEED on, while several faults strike at once; a minute each; resumes
	PYTHONPATH=tests/faults:tests/workflow $(BIN)/python performance/chaos.py $(call option,--seed,SEED) $(call option,--rounds,ROUNDS)

load: setup-test  ## run a thousand points through a stand-in for a batch system; kills Snakemake three times; about an hour
	PYTHONPATH=tests/workflow $(BIN)/python performance/load.py

soak: setup-test  ## run POINTS points on a real Slurm of virtual nodes, while faults by SEED hit Slurm and Snakemake; needs root; resumes
	PYTHONPATH=tests/faults:tests/workflow $(BIN)/python performance/slurm_soak.py \
	  $(call option,--points,POINTS) $(call option,--seed,SEED)

gpu:  ## check on this host's GPUs whether meters, device mapping and training are right; ends after MINUTES, 10 by default
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,python) scripts/gpu_check.py $(call option,--minutes,MINUTES)

setup:  ## make or repair .venv, WITH=pytorch also with PyTorch, WITH=test with what tests need; later set-ups keep both
	@scripts/setup.sh
	@$(BIN)/python -m compileall -q scripts  # where PYTHONDONTWRITEBYTECODE is set, Python writes none itself

setup-test setup-docs: setup-%:
	@scripts/setup.sh $(if $(filter test,$*),test docs,$*)
	@$(BIN)/python -m compileall -q scripts

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*  ## \([^;]*\).*/\1|\2/p' Makefile | awk -F '|' '{ printf "make %-11s %s\n", $$1, $$2 }'

lock: setup-test  ## write the locked requirements in envs/ from the requirements listed there; needs the network
	@scripts/lock.sh

format: setup-test  ## format code and rules
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules workflow

reference: setup  ## write docs/reference from the declarations in the code
	$(BIN)/python scripts/make_reference.py

advisories:  ## check the locked dependencies against the known security advisories; needs the network
	@scripts/advisories.sh

licences: setup  ## print the locked dependencies with their versions and licences, as a Markdown table
	@$(BIN)/python envs/licences.py

dist: setup  ## write a release into dist/: archive of the last commit, wheel, checksums, release notes, licences; TAG=v1.2 checks that tag
	@scripts/dist.sh $(if $(value TAG),$(call one_word,TAG))
	@$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist "$$(ls -t dist/*.tar.gz | head -n 1)"
	@cd dist && wheel=$$(ls -t *.whl | head -n 1) && sha256sum "$$wheel" >"$$wheel.sha256" && echo "dist/$$wheel, and its checksum beside it"
	@$(BIN)/python envs/licences.py >"dist/$$(cd dist && ls -t *.tar.gz | head -n 1 | sed s/tar.gz/licences.md/)"

docs: setup-docs  ## build the documentation site, docs/_build/html/index.html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/trees docs docs/_build/html

docs-links: setup-docs  ## check the external links of the documentation; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck -d docs/_build/trees docs docs/_build/links
