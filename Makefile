# The one entry. `make` alone prints the verbs; each brings what it needs.

.DEFAULT_GOAL := help
.NOTPARALLEL:
NIGHT := model simulation properties oracle fuzz contests blows brokers door ingest writers maintenance images drills judge generated tpch misuses connect connect-example debezium clients histories console bench demo
.PHONY: help env demo site test check unit model simulation sim fuzz conformance integration judge containers cluster emulators \
	kafka-image contests nightly bench docs charts release lock clean $(NIGHT:%=night-%)

# Hundreds of processes start in a run of the tests: what one has compiled the others load, even where
# the machine's owner has switched that off. (Empty is unset.)
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Unit and property tests are short and many, and some wait: four processes on two cores.
MANY := -n 4 --dist worksteal -q
# By file. Tests of processes wait more than they work: four files at once on two cores, each with a
# broker of its own.
FILES := --dist loadfile -v
SEEDS ?= 500
NIGHTLY_SEEDS ?= 5000
NIGHTLY_BLOWS ?= 600
NIGHTLY_VERSIONS ?= 20000
MINUTES ?= 60
SECONDS ?= 600
CONTESTS ?= 1000
NIGHTLY_ASKED ?= 1000
JUDGED ?= 5
NIGHTLY_JUDGED ?= 2000
SERVICES := committer checkpointer cdc-publisher producers console
# Stores besides S3: images have their libraries where asked (deploy/Dockerfile, STORES).
STORES := gcs adls
# What images have besides: schemas in a registry, spans, and the producers Spark Connect.
EXTRAS := registry otel spark-connect
comma := ,
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
# The jars are those of the PySpark that is locked, which the environment is made with.
LOCKED_JARS = sh .ci/env && jars=$$(sh deploy/build-steps.sh jar-sums .venv) && echo "$$jars" >requirements/spark-jars.sha256
# What builds our wheel, PySpark's, which is published as source only, and Faust's for arm64, which has none there.
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "setuptools", "setuptools-scm", sep="\n")

# A part of the night ends with the test that is running when its minutes are over.
budget = -o log_cli=true --log-cli-level=INFO --log-cli-format='%(asctime)s %(message)s' \
	--session-timeout=$(shell echo $$((60 * ($(1)))))
heading = @printf '\n=== %s\n' "$(1)"

help: ## this list
	@awk -F ' *## *' '/^[a-z]+:.*##/ { split($$1, verb, ":"); printf "%-13s%s\n", verb[1], $$2 }' Makefile

env: ## the environment in .venv and Kafka's jars in a cache; every other verb calls it
	@sh .ci/env

demo: env ## the whole line on real input: Kafka, Spark, committer, checkpointer, change stream; UP=1 leaves it running
	@$(BIN)/tidegate demo $(if $(UP),--up)

test: check unit model simulation conformance integration judge ## everything that CI runs: check, unit, property, house, model, simulation, conformance, integration, judge

check: env ## format, lint, types, layers
	$(call heading,check: format)
	@$(BIN)/ruff format --check .
	$(call heading,check: lint)
	@$(BIN)/ruff check .
	$(call heading,check: types (the first run takes a minute))
	@$(BIN)/mypy
	$(call heading,check: layers)
	@$(BIN)/lint-imports --no-logo
	$(call heading,check: long files (a report))
	@$(BIN)/python -m tests.house.sizes

unit: env ## unit, property and house tests: no network, no JVM
	$(call heading,unit: unit + property + house tests)
	@$(PYTEST) $(MANY) tests/unit tests/property tests/house tests/linearizability

model: env ## FULL=1 the protocol's models: the smallest configuration of each, or all, and every mutant (docs/proof.md)
	$(call heading,model: $(if $(FULL),every configuration of each model,the smallest configuration of each model) and every mutant)
	@$(PYTEST) $(MANY) tests/model $(if $(FULL),--full -rs)

simulation: env
	$(call heading,simulation: $(SEEDS) seeds of the real committer over stores and a bus that fail)
	@$(PYTEST) $(MANY) tests/simulation --seeds $(SEEDS)

sim: env ## SEED=n one seed, loudly; SEEDS=n that many
	$(call heading,simulation: $(if $(SEED),seed $(SEED),$(SEEDS) seeds))
	@$(PYTEST) tests/simulation $(if $(SEED),-s -v --seed $(SEED),$(MANY) --seeds $(SEEDS))

fuzz: env ## TARGET="sidecar" SECONDS=600 foreign bytes to our parsers, for longer than CI does
	@$(BIN)/python -m tests.fuzz "$(or $(TARGET),all)" $(SECONDS)

conformance: env ## foreign tables in our reader, our tables in foreign readers
	$(call heading,conformance: tables that others wrote; tables of ours that others read)
	@$(PYTEST) tests/conformance -n 2 $(FILES)

integration: env ## real Kafka, real Spark, kill -9
	$(call heading,integration: a real broker and real processes that are killed)
	@$(PYTEST) tests/integration -n 4 $(FILES) --no-loadscope-reorder --durations=20

judge: env ## SEED=n generated tables and verbs, by us and by delta-spark; JUDGED=n that many
	$(call heading,judge: $(if $(SEED),seed $(SEED),$(JUDGED) generated cases) beside delta-spark)
	@$(PYTEST) -v -s tests/judge $(if $(SEED),--seed $(SEED),--judged $(JUDGED))

containers: env ## the images, the Compose file, Kafka in a container; skips without a container engine
	$(call heading,containers: what only an engine can show)
	@TESTCONTAINERS_RYUK_DISABLED=true $(PYTEST) -v --containers -rs tests/containers \
		tests/integration/test_kafka_bus.py tests/integration/test_topic_admin.py

cluster: env ## the chart in the cluster of KUBECONFIG, and its day under load; skips without one
	$(call heading,cluster: what only a cluster can show)
	@$(PYTEST) -v -s --cluster -rs tests/cluster

kafka-image: env ## localhost/tidegate/kafka:4.1.1 from the cached jars, for places without a registry; BASE, BUILD_OPTIONS
	@context=$$(mktemp -d) && trap "rm -rf $$context" EXIT && $(BIN)/python deploy/kafka/context.py $$context && \
		docker build $(BUILD_OPTIONS) $(if $(BASE),--build-arg BASE=$(BASE)) -t localhost/tidegate/kafka:4.1.1 $$context

emulators: env ## fake-gcs-server and Azurite from their registries, for `make contests`
	@sh .ci/emulators

contests: emulators ## a thousand contests a store, over a road that loses answers; CONTESTS=n
	$(call heading,contests: $(CONTESTS) names a store, two writers each)
	@$(PYTEST) -q tests/integration/test_store_laws.py tests/integration/test_store_contests.py --contests $(CONTESTS)

nightly: env ## longer: every model configuration, TLC, 5,000 seeds, more examples, contests, 600 blows, 20,000 versions
	@failed=; for part in $(NIGHT); do \
		$(MAKE) --no-print-directory night-$$part || failed="$$failed $$part"; \
	done; test -z "$$failed" || { echo "the night failed in:$$failed"; exit 1; }

$(NIGHT:%=night-%): env

night-model:
	$(call heading,night: every configuration of each model and TLC; 30 minutes)
	@$(PYTEST) $(MANY) $(call budget,30) tests/model --full -rs

night-simulation:
	$(call heading,night: $(NIGHTLY_SEEDS) seeds; 40 minutes)
	@$(PYTEST) $(MANY) $(call budget,40) tests/simulation --seeds $(NIGHTLY_SEEDS)

night-properties:
	$(call heading,night: properties on more examples; 30 minutes)
	@$(PYTEST) $(MANY) $(call budget,30) tests/property --hypothesis-profile explore

night-oracle:
	$(call heading,night: $(NIGHTLY_ASKED) new conflicts that delta-spark decides beside us; 30 minutes)
	@$(PYTEST) -v $(call budget,30) tests/conformance/test_oracle.py --asked $(NIGHTLY_ASKED)

night-fuzz:
	$(call heading,night: foreign bytes to every parser; $(SECONDS) seconds)
	@$(MAKE) --no-print-directory fuzz

night-contests:
	$(call heading,night: $(CONTESTS) contests a store; 30 minutes)
	@$(MAKE) --no-print-directory contests

night-blows:
	$(call heading,night: $(NIGHTLY_BLOWS) kills and suspensions under load; 40 minutes)
	@$(PYTEST) -v $(call budget,40) tests/integration/test_blows.py --blows $(NIGHTLY_BLOWS)

night-brokers:
	$(call heading,night: three brokers killed$(comma) hanging$(comma) cut off$(comma) restarted and on full disks under load; 45 minutes)
	@$(PYTEST) -v $(call budget,45) tests/integration/test_three_brokers.py --full -rs

night-door:
	$(call heading,night: delta-spark through the gate: a hundred kills$(comma) the judged scripts$(comma) generated cases; 2 hours)
	@$(PYTEST) -v $(call budget,30) tests/integration/test_log_store.py --full --blows 1000
	@$(PYTEST) -v $(call budget,50) tests/integration/test_log_store_judge.py --full
	@$(PYTEST) -v -s $(call budget,40) tests/judge --judged 200 --door

night-ingest:
	$(call heading,night: ten million records under two hundred kills$(comma) and a copy by a change topic; 3 hours)
	@$(PYTEST) -v $(call budget,180) tests/integration/test_ingest_round_trip.py tests/integration/test_ingest_blows.py \
		tests/integration/test_ingest_logins.py tests/integration/test_ingest_topics.py tests/integration/test_ingest_cluster.py \
		tests/integration/test_ingest_connect.py --full --blows 200

night-writers:
	$(call heading,night: $(NIGHTLY_VERSIONS) versions by writers of all kinds; 45 minutes)
	@$(PYTEST) -v $(call budget,45) tests/integration/test_mixed_writers.py tests/integration/test_serial_equivalence.py --full --versions $(NIGHTLY_VERSIONS)

night-maintenance:
	$(call heading,night: a day of a maintained table in $(MINUTES) minutes; 35 minutes more at most)
	@$(PYTEST) -v -rs $(call budget,$(MINUTES) + 35) tests/integration/test_maintained_by_spark.py tests/integration/test_maintained_day.py --full --minutes $(MINUTES)

night-images:
	$(call heading,night: the build steps of an image, replayed; 15 minutes)
	@$(PYTEST) -v $(call budget,15) tests/integration/test_image_steps.py --full

night-drills:
	$(call heading,night: the drills of docs/drills.md; 15 minutes)
	@$(PYTEST) -v $(call budget,15) tests/integration/test_drills.py --full

night-judge:
	$(call heading,night: rows that delta-spark and we change alike; 50 minutes)
	@$(PYTEST) -v $(call budget,50) tests/integration/test_spark_judge.py --full

night-generated:
	$(call heading,night: $(NIGHTLY_JUDGED) generated cases beside delta-spark; 4 hours)
	@$(PYTEST) -v -s $(call budget,240) tests/judge --judged $(NIGHTLY_JUDGED)
	@$(BIN)/python -m tests.judge.mutants

night-tpch:
	$(call heading,night: TPC-H with refresh streams; 15 minutes)
	@$(PYTEST) -v $(call budget,15) tests/integration/test_tpch.py --full

night-misuses:
	$(call heading,night: what Spark shows of each misuse; 10 minutes)
	@$(PYTEST) -v $(call budget,10) tests/integration/test_spark_misuses.py --full

night-connect:
	$(call heading,night: what producers do in Spark$(comma) on Spark Connect; 30 minutes)
	@SPARK_REMOTE="local[2]" $(PYTEST) -v $(call budget,30) tests/integration/test_spark_options.py tests/integration/test_spark_batch.py \
		tests/integration/test_spark_changes.py tests/integration/test_spark_stream.py tests/integration/test_spark_misuses.py --full

night-connect-example:
	$(call heading,night: Kafka to tables on Spark Connect$(comma) killed; 15 minutes)
	@SPARK_REMOTE="local[2]" $(PYTEST) -v $(call budget,15) tests/integration/test_kafka_to_tables.py --full

night-debezium:
	$(call heading,night: a table of PostgreSQL by Debezium into a Delta table; 30 minutes)
	@$(PYTEST) -v $(call budget,30) tests/integration/test_ingest_debezium.py --full -rs

night-clients:
	$(call heading,night: Kafka Connect and other clients read the change stream; 30 minutes)
	@$(PYTEST) -v $(call budget,30) tests/integration/test_real_clients.py tests/integration/test_java_readers.py \
		tests/integration/test_cdc_memory.py \
		tests/integration/test_cdc_outages.py \
		tests/unit/cdc_publisher/test_random_histories.py \
		"tests/integration/test_cdc_publisher.py::test_killed_at_any_moment_under_load_it_repeats_and_loses_nothing" --full

night-histories:
	$(call heading,night: random histories by us$(comma) delta-spark and delta-rs$(comma) replayed from the change stream; 30 minutes)
	@$(PYTEST) -v $(call budget,30) tests/integration/test_mixed_histories.py --full

night-console:
	$(call heading,night: the operations page in a headless Chromium; 10 minutes)
	@$(PYTEST) -v $(call budget,10) tests/integration/test_console_pages.py --full -rs

night-bench:
	$(call heading,night: small runs of the bench that take long; 15 minutes)
	@$(PYTEST) -v $(call budget,15) tests/integration/test_bench.py --full

night-demo:
	$(call heading,night: what `make demo` runs; 5 minutes)
	@$(BIN)/tidegate demo

bench: env ## the figures, each beside its peer
	@$(BIN)/python -m bench

release: env ## dist/: wheel, sdist, the images' context, the chart; every version compared
	@$(BIN)/python deploy/release.py

charts: ## deploy/helm/rendered/ anew, from the chart and deploy/helm/values/; needs helm
	@sh deploy/helm/render

docs: env ## docs/features.md and docs/reference.md anew, from the code
	@$(BIN)/python -m tests.features_page > docs/features.md
	@$(BIN)/python -m tests.reference > docs/reference.md

site: env ## the documents as a site, in dist/site/: links are checked, nothing is loaded from elsewhere
	@$(BIN)/uv venv --quiet --allow-existing .cache/site
	@$(BIN)/uv pip install --quiet --require-hashes --python .cache/site -r requirements/site.txt
	@NO_MKDOCS_2_WARNING=1 .cache/site/bin/mkdocs build --quiet --strict

lock: env ## requirements/ anew, from pyproject.toml
	$(call heading,lock: all.txt and a file for each service$(comma) store$(comma) extra and for the build of wheels)
	@$(LOCK) pyproject.toml --all-extras --group dev -o requirements/all.txt
	@echo "requirements/site.txt"
	@$(LOCK) --group site -c requirements/all.txt -o requirements/site.txt
	@echo "requirements/build.txt"
	@$(BIN)/python -c '$(BUILD_REQUIRES)' | $(LOCK) - -c requirements/all.txt -o requirements/build.txt
	@for service in $(SERVICES); do \
		echo "requirements/$$service.txt"; \
		$(LOCK) pyproject.toml --extra $$service --extra s3 -c requirements/all.txt -o requirements/$$service.txt || exit 1; \
	done
	@for extra in $(STORES) $(EXTRAS); do \
		echo "requirements/$$extra.txt"; \
		$(LOCK) pyproject.toml --extra $$extra -c requirements/all.txt -o requirements/$$extra.txt || exit 1; \
	done
	@echo "requirements/spark-jars.sha256"
	@$(LOCKED_JARS)

clean: ## what tools and builds left behind; .venv and the jars stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache dist build spark-warehouse metastore_db derby.log
