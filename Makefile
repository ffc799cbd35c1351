# Each target creates .venv and installs its requirements: Python 3.11+, and Java 17+ for Spark and Apache Kafka.
# `make docs` has an environment of its own. pip shows what it fetches: on a slow network that takes minutes.
PYTHON ?= python3
SEEDS ?= 100
FIRST ?= 1
WORLDS ?=
FEATURE ?= all
ROUNDS ?= 1
CUTS ?= 5
SECONDS ?= 30
MINUTES ?= 60
VERSIONS ?= --write
BOUNDS ?=
BROKER ?= broker_core
FAULTS ?= all
SUITES ?= all
TESTS ?= tests
# `make conformance` does not repeat what `make test` has run on broker_core; LEAVE_OUT= does.
LEAVE_OUT ?= --after-make-test

VENV := .venv
RUN := $(VENV)/bin/python
# The plugin of anyio imports trio in each process, and no test of this process uses it.
PYTEST := $(RUN) -m pytest -p no:anyio
INSTALLED := $(VENV)/.installed
# The site needs its own packages only: pages of the API are read from the sources, which are not imported.
DOCS_VENV := .cache/docs
DOCS_RUN := $(DOCS_VENV)/bin/python
DOCS_INSTALLED := $(DOCS_VENV)/.installed
MERMAID := mermaid-11.17.2
# Most tests wait for other processes; the tests of one file share brokers and Spark sessions. The files start in the
# order of tests/support/file_order.py: in that of the folders, two cores were idle for a quarter of the time.
IN_PARALLEL := --dist loadfile --no-loadscope-reorder
# Quick files of other suites that need no connection and no process.
WITHOUT_SOCKETS := $(addprefix tests/,compatibility crash/test_growth.py crash/test_wave.py docs/test_architecture.py \
	docs/test_pages.py foreign integration/spark_eos/monitoring simulation/test_clients_in_worlds.py \
	simulation/test_markers.py simulation/test_simulated_disk.py simulation/test_simulated_network.py)
# What searches runs a part of its cases, which the sources choose; SEARCHES=whole runs every case. The tests alone, without
# make, run every case.
check-broker check-rest test slow: export SEARCHES ?= short
# Compiled modules stay in __pycache__, even where the environment forbids it, as images of Python often do: each process
# of the tests would compile the project again, which takes most of them about a second.
unexport PYTHONDONTWRITEBYTECODE
CODE := broker_core spark_eos pyspark_eos_kafka.py tests examples findings

.DEFAULT_GOAL := help
.PHONY: help venv demo check check-broker check-rest test test-modules slow spark-archive kafka-archive compiled-build compiled conformance foreign compatibility crash soak simulate histories fuzz bench findings docs lint commit-msg format types clean python java explore without

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1: /p' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## Create .venv and install the package with all its extras

$(INSTALLED): setup.cfg pyproject.toml | python
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes, once."
	@# compat: a plain path entry, so that Spark's search for pyspark_* modules finds the module in the source tree.
	@$(RUN) -m pip install --disable-pip-version-check --no-input --editable '.[dev]' --config-settings editable_mode=compat
	@touch $@

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python is too old: " + sys.executable + " is " + sys.version.split()[0] + "; install Python 3.11 or newer, or name one: make PYTHON=python3.11")'

java: | python
	@$(PYTHON) -m tests.support.java

demo: java $(INSTALLED) ## Run the demo: Spark counts lines from the embedded broker exactly once, although it is killed and restarted
	@SPARK_CONF_DIR=conf $(RUN) -m examples.demo

check: $(INSTALLED) ## Check style, types, architecture and unit tests, in a minute: no sockets, no JVM, no processes
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types check-broker check-rest

# Two runs, each of its own half: processes of pytest-xdist would both import every test file.
check-broker check-rest: export HYPOTHESIS_PROFILE := brief

# The guard refuses connections and processes in the files of other suites too.
check-broker: $(INSTALLED)
	@$(PYTEST) -q -p tests.support.no_network tests/unit/broker_core tests/kips $(WITHOUT_SOCKETS)

check-rest: $(INSTALLED)
	@$(PYTEST) -q tests/architecture tests/unit --ignore tests/unit/broker_core

spark-archive: $(INSTALLED)
	@$(RUN) -m tests.support.spark_archive || echo "Each JVM of Spark will read its classes from the jars."

kafka-archive: $(INSTALLED)
	@$(RUN) -m tests.support.kafka_archive || echo "Each JVM of Apache Kafka will read its classes from the jars."

test: $(INSTALLED) spark-archive ## Run the tests that need no network, searches and brokers under Spark in half; SEARCHES=whole for every case (tests with Spark are skipped where Java is missing)
	@$(PYTHON) -m tests.support.java || echo "The tests with Spark will be skipped."
	@# First the quick tests, without pytest-xdist: for each of them it takes as long as they take. The others run in any case.
	@$(MAKE) --no-print-directory -k -j 2 --output-sync=target HYPOTHESIS_PROFILE=$(HYPOTHESIS_PROFILE) check-broker check-rest; \
	quick=$$?; \
	$(PYTEST) tests $(addprefix --ignore tests/,architecture kips unit) $(WITHOUT_SOCKETS:%=--ignore %) -n 4 $(IN_PARALLEL) && exit $$quick

# The short form runs a part of the tests on Apache Kafka: the fixtures of all are planned here, without running one. Python
# also keeps the compiled tests: in a fresh clone, each process of pytest-xdist would compile all of them.
test-modules: $(INSTALLED)
	@mkdir -p .cache
	@SEARCHES=whole $(RUN) -m pytest tests --apache --setup-plan --quiet -rE >.cache/planned || { grep -A 4 ^ERROR .cache/planned; exit 1; }

slow: $(INSTALLED) ## Run TESTS="tests" and print where their time goes: slowest tests, fixtures and files, tiers, idle processes
	@$(RUN) -m tests.support.slow $(TESTS) -n 4 $(IN_PARALLEL) -q

compiled-build: $(INSTALLED)
	@$(RUN) -m tests.compiled --only-build

compiled: $(INSTALLED) ## Compile the broker's hot path in a copy of the project, run the tests that reach it there, and compare the traces of SEEDS=n simulations
	@$(RUN) -m tests.compiled --seeds $(SEEDS)

conformance: java $(INSTALLED) kafka-archive ## Run the conformance tests and third-party clients against both brokers, and source and sink in Spark against Apache Kafka
	@$(RUN) -m pytest $$($(RUN) -m tests.support.one_broker) tests/foreign tests/crash/test_cluster.py --apache $(LEAVE_OUT) -n 4 $(IN_PARALLEL)

foreign: java $(INSTALLED) ## Run test suites of other projects on both brokers and compare their failures with the known ones; SUITES="franz-go sarama" runs some
	@$(RUN) -m tests.foreign $(SUITES)

compatibility: java $(INSTALLED) ## Run the same jobs with PySpark 3.5 to 4.3 and Apache Kafka 3.6 to 4.4, each PySpark in its own environment; VERSIONS="--kafka 3.9" tries some
	@$(RUN) -m tests.compatibility $(VERSIONS)

crash: java $(INSTALLED) ## Inject every fault at every step of the sink, ROUNDS=n times on both brokers, and into three nodes of Apache Kafka, with CUTS=n nodes cut off in a round; count what readers see
	@$(RUN) -m tests.crash --rounds $(ROUNDS) --cuts $(CUTS)

soak: java $(INSTALLED) ## Run a query for MINUTES=n with restarts, failures and quiet times, and see that memory, sockets, ids and files do not grow
	@$(RUN) -m tests.crash.soak --minutes $(MINUTES)

without: $(INSTALLED) ## Run the broker's unit tests in a copy without FEATURE=all, or one folder of broker_core/features
	@$(RUN) -m tests.support.without_feature $(FEATURE) -n 2

simulate: $(INSTALLED) ## Run SEEDS=n seeded simulations of broker, clients and sink, from FIRST=n on, and report the first that fails; WORLDS=--acts plays users and operators, WORLDS=--reads a query that reads, WORLDS=--copies one that does both
	@$(RUN) -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(WORLDS)

explore: $(INSTALLED) ## Visit every state of small worlds of drivers, tasks and a cluster, with the protocol's code: about two minutes on two cores; BOUNDS="--tasks 2 --faults 2" sets their size
	@$(RUN) -m tests.explorer $(BOUNDS)

histories: $(INSTALLED) ## Run real clients while faults (FAULTS=all, kill, pause or restart) hit BROKER=broker_core or apache, ROUNDS=n times SECONDS=n, and check their histories
	@$(RUN) -m tests.history --broker $(BROKER) --faults $(FAULTS) --runs $(ROUNDS) --seconds $(SECONDS)

fuzz: $(INSTALLED) ## Fuzz every parser of bytes, SECONDS=n for each target
	@$(RUN) -m pip install --disable-pip-version-check --no-input '.[fuzz]'
	@$(RUN) -m tests.fuzz --seconds $(SECONDS)

bench: $(INSTALLED) ## Measure codec, broker, recovery, and source and sink in Spark, each beside a comparable tool
	@$(RUN) -m tests.benchmarks.bench_codec
	@$(RUN) -m tests.benchmarks.bench_broker
	@$(RUN) -m tests.benchmarks.bench_source
	@$(RUN) -m tests.benchmarks.bench_spark --broker $(BROKER)

findings: java ## Show what Spark, Kafka and clients really do, without our code: run the scripts of findings/, which install what they need
	@PYTHON=$(PYTHON) bash findings/lib/run_all.sh

docs: $(DOCS_INSTALLED) .cache/$(MERMAID).min.js ## Build the documentation site into site/, strictly: no warnings, no broken links
	@NO_MKDOCS_2_WARNING=1 $(DOCS_RUN) -m mkdocs build --clean --strict
	@if [ -s .cache/$(MERMAID).min.js ]; then mkdir -p site/javascripts && cp .cache/$(MERMAID).min.js site/javascripts/mermaid.min.js; fi
	@echo "The site is in site/: $(PYTHON) -m http.server --directory site"

# The extra `docs` without the project and its libraries, as the extra says them.
$(DOCS_INSTALLED): setup.cfg | python
	@test -x $(DOCS_RUN) || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_RUN) -m pip install --disable-pip-version-check --no-input $$($(PYTHON) -c 'import configparser; read = configparser.ConfigParser(); read.read("setup.cfg"); print(*read["options.extras_require"]["docs"].split())')
	@touch $@

# Draws the diagrams. Without npm the site loads it from unpkg.com.
.cache/$(MERMAID).min.js:
	@mkdir -p .cache
	@folder=$$(mktemp -d) && \
		if (cd $$folder && npm pack --silent mermaid@$(MERMAID:mermaid-%=%) && tar xzf $(MERMAID).tgz package/dist/mermaid.min.js) >/dev/null 2>&1; \
		then mv $$folder/package/dist/mermaid.min.js $@; \
		else echo "npm could not fetch $(MERMAID): the site will load it from unpkg.com."; fi; \
		rm -rf $$folder

lint: $(INSTALLED) ## Check style, format, import order, and the prose of sources and pages
	@$(RUN) -m ruff check --quiet
	@$(RUN) -m ruff format --check --quiet
	@$(RUN) -m tests.support.prose

commit-msg: $(INSTALLED) ## Check the message of the last commit: package, imperative summary, 60 characters
	@$(RUN) -m tests.support.commit_subject

format: $(INSTALLED) ## Format the code and sort its imports
	@$(RUN) -m ruff check --quiet --fix
	@$(RUN) -m ruff format --quiet

types: $(INSTALLED) ## Check types: strictly in both packages, and in tests/support
	@$(RUN) -m mypy

clean: ## Remove the files of builds and tests; .venv and .cache (slow to fetch again) stay
	@rm -rf build dist site htmlcov coverage.xml .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info \
		spark-warehouse metastore_db derby.log artifacts
	@find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +
