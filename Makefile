# The one entry. `make` alone prints the verbs; each brings what it needs.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help env demo test check unit model simulation sim fuzz conformance integration emulators \
	contests nightly bench docs lock clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Unit and property tests are short and many: one process a core, four at most.
MANY := -n auto --maxprocesses 4 -q
SEEDS ?= 500
NIGHTLY_SEEDS ?= 5000
SECONDS ?= 600
CONTESTS ?= 1000
SERVICES := committer checkpointer cdc-publisher producers
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

heading = @printf '\n=== %s\n' "$(1)"

help: ## this list
	@awk -F ' *## *' '/^[a-z]+:.*##/ { split($$1, verb, ":"); printf "%-13s%s\n", verb[1], $$2 }' Makefile

env: ## the environment in .venv and Kafka's jars in a cache; every other verb calls it
	@sh .ci/env

demo: env ## the whole line on real input: Kafka, Spark, committer, checkpointer, change stream; UP=1 leaves it running
	@$(BIN)/tidegate demo $(if $(UP),--up)

test: check unit model simulation conformance integration ## everything that CI runs: check, unit, property, house, model, simulation, conformance, integration

check: env ## format, lint, types, layers
	$(call heading,check: format)
	@$(BIN)/ruff format --check .
	$(call heading,check: lint)
	@$(BIN)/ruff check .
	$(call heading,check: types (the first run takes a minute))
	@$(BIN)/mypy
	$(call heading,check: layers)
	@$(BIN)/lint-imports --no-logo

unit: env ## unit, property and house tests: no network, no JVM
	$(call heading,unit: unit + property + house tests)
	@$(PYTEST) $(MANY) tests/unit tests/property tests/house tests/linearizability

model: env ## the protocol's models: every state, every rule taken away (docs/proof.md)
	$(call heading,model: every state of the protocol)
	@$(PYTEST) $(MANY) tests/model $(if $(FULL),--full -rs)

simulation: env
	$(call heading,simulation: $(SEEDS) seeds of the real committer over doors that fail)
	@$(PYTEST) $(MANY) tests/simulation --seeds $(SEEDS)

sim: env ## SEED=n one seed, loudly; SEEDS=n that many
	$(call heading,simulation: $(if $(SEED),seed $(SEED),$(SEEDS) seeds))
	@$(PYTEST) tests/simulation $(if $(SEED),-s -v --seed $(SEED),$(MANY) --seeds $(SEEDS))

fuzz: env ## TARGET="sidecar" SECONDS=600 foreign bytes to our parsers, for longer than CI does
	@$(BIN)/python -m tests.fuzz "$(or $(TARGET),all)" $(SECONDS)

conformance: env ## foreign tables in our reader, our tables in foreign readers
	$(call heading,conformance: tables that others wrote; tables of ours that others read)
	@$(PYTEST) tests/conformance -v

integration: env ## real Kafka, real Spark, kill -9
	$(call heading,integration: a real broker and real processes that are killed)
	@$(PYTEST) tests/integration -v

emulators: env ## fake-gcs-server and Azurite from their registries, for `make contests`
	@sh .ci/emulators

contests: emulators ## a thousand contests a store, over a road that loses answers; CONTESTS=n
	$(call heading,contests: $(CONTESTS) names a store, two writers each)
	@$(PYTEST) -q tests/integration/test_store_laws.py tests/integration/test_store_contests.py --contests $(CONTESTS)

nightly: env ## longer: 5,000 seeds, the large models, TLC as second opinion, more examples
	@$(MAKE) --no-print-directory model FULL=1
	@$(MAKE) --no-print-directory simulation SEEDS=$(NIGHTLY_SEEDS)
	$(call heading,nightly: properties on more examples)
	@$(PYTEST) $(MANY) tests/property --hypothesis-profile explore

bench: env ## the figures, each beside its peer
	@$(BIN)/python -m bench

docs: env ## docs/features.md anew, from the tables in code
	@$(BIN)/tidegate features > docs/features.md

lock: env ## requirements/ anew, from pyproject.toml
	$(call heading,lock: all.txt and a file for each service and for the build of wheels)
	@$(LOCK) pyproject.toml --all-extras --group dev -o requirements/all.txt
	@echo "requirements/build.txt"
	@$(BIN)/python -c '$(BUILD_REQUIRES)' | $(LOCK) - -c requirements/all.txt -o requirements/build.txt
	@for service in $(SERVICES); do \
		echo "requirements/$$service.txt"; \
		$(LOCK) pyproject.toml --extra $$service --extra s3 --extra gcs --extra adls -c requirements/all.txt -o requirements/$$service.txt || exit 1; \
	done

clean: ## what tools and builds left behind; .venv and the jars stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache dist build spark-warehouse metastore_db derby.log
