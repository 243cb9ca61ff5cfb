# Everything a fresh machine with Python 3.11+ needs: `make run`, `make test`. Both set up first; repeats skip what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes; without cached bytecode each would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test fast busy nightly lint types contracts kafka-jars spark-jars delta-jars hdfs-jars postgres chromium page frameworks store-servers lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## create .venv with the locked dependencies and a Java if there is none; leaves .venv/bin/holdfast

$(VENV)/.ready: requirements.lock pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" bash tools/setup.sh "$(VENV)"
	@touch $@

run: setup ## play the scene, with a page: PySpark queries of one group; one joins, one drains, one is killed
	@$(BIN)/holdfast demo

# The half without other processes mostly waits: three at a time keep two cores busy. The other half two at a time:
# with three, members and brokers were starved into time-outs. Spark's one after
# the other: one of them alone is several JVMs and their workers, more than two cores can do in time.
OTHERS := java or kafka or spark or browser or slow

test: fast page kafka-jars spark-jars postgres chromium ## everything CI runs
	@echo "[test] with Java, Apache Kafka and other real clients"
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "($(OTHERS)) and not (spark or nightly)"
	@echo "[test] with Spark"
	@$(BIN)/python -m pytest -m "spark and not nightly"

fast: setup lint types contracts ## what needs no Java, Kafka or Spark: two minutes
	@echo "[test] without Java, Kafka or Spark"
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "not ($(OTHERS) or nightly)"

# Stops for nothing and ends with a table of what failed. TIMES=1 for a single run; AT_ONCE=2 lets two runs load each other.
TIMES ?= 10
AT_ONCE ?= 1
busy: setup kafka-jars postgres chromium ## everything but Spark ten times while something else keeps the cores busy: no test may fail
	@$(BIN)/python tools/busy.py --times $(TIMES) --at-once $(AT_ONCE)

nightly: setup kafka-jars spark-jars delta-jars hdfs-jars postgres chromium frameworks store-servers ## the long forms of the tests, and `make busy`
	@$(BIN)/python -m pytest -m nightly
	@$(MAKE) busy

lint: setup ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup ## mypy, strict, for the code and for its tests
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests

contracts: setup ## the architecture as import contracts
	@$(BIN)/lint-imports --no-cache

kafka-jars: tests/kafka/jars/.ready ## Apache Kafka from Maven, for tests and benchmarks

tests/kafka/jars/.ready: tests/kafka/pom.xml tools/kafka-jars.sh
	@bash tools/kafka-jars.sh
	@touch $@

# Behind kafka-jars, which brings Maven where there is none.
spark-jars: tests/spark/jars/.ready ## Spark's own Kafka source from Maven, for tests and benchmarks beside it

tests/spark/jars/.ready: tests/spark/pom.xml tools/spark-jars.sh | tests/kafka/jars/.ready
	@bash tools/spark-jars.sh
	@touch $@

delta-jars: tests/spark/delta/jars/.ready ## Delta Lake from Maven, for a nightly test

hdfs-jars: tests/spark/hdfs/jars/.ready ## a small HDFS from Maven, for nightly tests

tests/spark/%/jars/.ready: tests/spark/%/pom.xml | tests/kafka/jars/.ready
	@mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory="$(CURDIR)/$(@D)"
	@touch $@

postgres: ## a PostgreSQL server for the tests of the database sink, from Debian's packages
	@bash tools/postgres.sh

chromium: ## a Chromium for the tests of the page, from Debian's packages
	@bash tools/chromium.sh

page: setup ## the page's modules: types and unit tests, where node is installed
	@bash tools/page-types.sh "$(VENV)"

frameworks: setup ## Quix Streams and FastStream, in an environment of their own, for a nightly test
	@bash tools/frameworks.sh

store-servers: ## MinIO, Azurite and s3rver, for nightly tests of sinks in object stores
	@bash tools/store-servers.sh

lock: setup ## pin the dependencies anew
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --group test --group java --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header -o requirements.lock

clean: ## forget the environment and everything built
	rm -rf $(VENV) tests/kafka/jars tests/spark/jars tests/spark/*/jars tests/spark/.servers .mypy_cache .ruff_cache .pytest_cache .hypothesis
