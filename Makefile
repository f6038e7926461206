# Each target creates .venv if it does not exist. PYTHON names the interpreter for it (3.10 or newer). With HASHED=1, as
# continuous integration and releases do, pip installs only files with the hashes of requirements-*.txt (tools/lock.py),
# with three exceptions: what fuzz-guided, mutants and gssapi install, and the dependencies that `release` tries a wheel
# with, after the sums of the published files were made.
PYTHON ?= python3
HASHED ?=
BIN := .venv/bin
READY := .venv/.installed
.PHONY: demo site test coverage check unit sim fuzz fuzz-guided mutants gssapi integration spark slow compat yarn chaos soak streams bench zip release clean

demo: $(READY)
	@$(BIN)/python -m tools.demo

# Parallel pytest processes, as many as the cores have room for: docs/testing.md.
test: $(READY)
	@$(BIN)/python -m tools.suite $(if $(SEED),--seed $(SEED)) $(if $(SECOND_TRY),--second-try $(SECOND_TRY))

# The same tests, with line coverage of every Python process that they start, including Spark's.
COVERAGE := $(CURDIR)/build/coverage
coverage: export COVERAGE_PROCESS_START = $(CURDIR)/pyproject.toml
coverage: export COVERAGE_FILE = $(COVERAGE)/data
coverage: $(READY)
	@rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	@status=0; $(BIN)/python -m tools.suite $(if $(SEED),--seed $(SEED)) $(PLACES) || status=$$?; \
		$(BIN)/coverage combine -q && $(BIN)/coverage report -i --include='kafka_sink/*' --skip-covered && exit $$status

check: $(READY)
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/python -m tools.tidy

# The site needs no network: open build/site/index.html, or serve the folder, which the search needs.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"

unit: $(READY)
	$(BIN)/pytest tests/unit

sim: $(READY)
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED))

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz.fuzz_wire --count $(or $(COUNT),1000000) --seed $(or $(SEED),1)

# Only this target needs atheris, which does not support every Python.
fuzz-guided: $(READY)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt atheris
	$(BIN)/python -m tests.fuzz.guided --seconds $(or $(SECONDS),20) $(if $(TARGET),--target $(TARGET))

# Only this target needs mutmut. It computes for an hour or more; PLACE="options kafka/wire" judges some folders.
mutants: $(READY)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt mutmut
	$(BIN)/python -m tools.mutants $(PLACE)

# Without hashes: it is built against the host's Kerberos library, with what its sdist asks for.
# apt-get install gcc libkrb5-dev krb5-kdc krb5-admin-server krb5-user
gssapi: $(READY)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt gssapi

slow: $(READY)
	@$(BIN)/python -m tools.suite $(if $(SEED),--seed $(SEED)) -- -m slow

chaos: $(READY)
	CHAOS_RECORDS=1000000 $(BIN)/pytest -s -m "" tests/chaos tests/spark/test_stream_faults.py tests/spark/test_killed_drivers.py

integration: $(READY)
	@$(BIN)/python -m tools.suite $(if $(SEED),--seed $(SEED)) tests/conformance tests/integration

spark: $(READY)
	@$(BIN)/python -m tools.suite $(if $(SEED),--seed $(SEED)) tests/spark

compat: $(READY)
	$(BIN)/python -m tools.compat $(if $(KAFKA),--kafka $(KAFKA)) $(if $(PYSPARK),--pyspark $(PYSPARK))

# A ResourceManager and a NodeManager on this machine; the packages of the environment that it packs come from pip.
# PYSPARK=4.0.5 for another PySpark that has the format, in an environment as make compat has.
PYSPARK_PYTHON = $$($(BIN)/python -c "from tools.compat import spark_python; print(spark_python('$(PYSPARK)'))")
yarn: $(READY)
	PYKAFKA_SINK_REQUIRE_KAFKA=1 $(if $(PYSPARK),$(PYSPARK_PYTHON) -m pytest,$(BIN)/pytest) tests/yarn

soak: $(READY)
	$(BIN)/python -m tools.soak --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

# Many streams in one application, or with CONNECT=1 in one Spark Connect session. DOOR=functions: not through the format.
# PYSPARK=4.0.5 for another PySpark, in an environment as make compat has; CONNECT=1 needs such a one, with its version.
streams: $(READY)
	$(if $(PYSPARK),$(PYSPARK_PYTHON),$(BIN)/python) -m tools.many_streams --minutes $(or $(MINUTES),10) \
		$(if $(SEED),--seed $(SEED)) $(if $(CONNECT),--connect) $(if $(DOOR),--door $(DOOR))

bench: $(READY)
	$(BIN)/python -m bench $(if $(QUICK),--quick --case 100B-lz4)
	$(BIN)/python -m bench.spark_sinks $(if $(QUICK),--quick --case 100B-keyed-lz4 1000B-keyed-lz4)
	$(BIN)/python -m bench.commit_steps $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/python -m bench.commit_cost)

zip: $(READY)
	$(BIN)/python -m tools.make_zip

# Builds all published files twice into dist/, compares, checks and installs them. Nothing is uploaded. STEP=build runs
# only tools whose hashes are known, STEP=try the rest.
release: $(READY)
	$(BIN)/python -m tools.release $(STEP)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

PIP := $(BIN)/pip install -q --disable-pip-version-check
# Build tools first: nothing is built in an environment of its own, whose packages nobody has pinned. compat adds a plain
# path, because Spark finds data sources by searching folders; setuptools warns about it.
EDITABLE := --no-build-isolation --config-settings editable_mode=compat -e
$(READY): setup.py constraints.txt requirements-release.txt requirements-dev.txt
	@echo "Installing into .venv, once: half a minute with a fast network"
	@# pip comes last: a folder without it is that of an attempt that failed (no python3-venv) or was interrupted.
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
ifeq ($(HASHED),1)
	$(PIP) --require-hashes -r requirements-release.txt
	$(PIP) --require-hashes --no-build-isolation -r requirements-dev.txt
	PYTHONWARNINGS=ignore $(PIP) --no-deps $(EDITABLE) .
else
	$(PIP) -c constraints.txt pip setuptools wheel
	PYTHONWARNINGS=ignore $(PIP) -c constraints.txt $(EDITABLE) '.[dev]'
endif
	@touch $(READY)
