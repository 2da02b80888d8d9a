#!/bin/sh
# The steps that make an environment, as the Dockerfile runs them; they need Python, pip and a registry, and no engine.
#   dependencies TARGET LOCKS STORES   an environment in TARGET with exactly what requirements/LOCK.txt of each pins
#   jars TARGET                        Spark's sources for Kafka and Avro, of which requirements/spark-jars.sha256 pins every jar
#   jar-sums TARGET                    prints that file anew, without comparing
#   package TARGET                     tidegate itself, built from this folder
set -eu

pip_into() {
    into="$1"
    shift
    python3 -m pip --python "$into/bin/python" "$@"
}

# Everything that builds is pinned by hash, too: no build fetches its own tools.
build_tools() {
    python3 -m venv --without-pip "$1"
    pip_into "$1" install $quiet --require-hashes --only-binary :all: -r requirements/build.txt
}

# What has no wheel is made into one with our build tools: PySpark everywhere, Faust on arm64 (without its C extensions, so no
# compiler is needed). Their own requirements are in the lock.
machine="${MACHINE:-$(uname -m)}"
split_off_sources() {
    ours='^pyspark=='
    if [ "$machine" = aarch64 ]; then ours='^(pyspark|faust-streaming)=='; fi
    awk -v ours="$ours" '/^[A-Za-z0-9]/ { mine = $0 ~ ours } mine' "$1" >>"$work/sources.txt"
    awk -v ours="$ours" '/^[A-Za-z0-9]/ { mine = $0 ~ ours } !mine' "$1" >"$work/$(basename "$1")"
}

# Removes all modules of a folder but the named ones.
only() {
    folder="$1"
    shift
    for module in "$folder"/*.py; do
        name="$(basename "$module" .py)"
        case " $* " in
        *" $name "*) ;;
        *) rm -f "$module" "$folder/__pycache__/$name".*.pyc ;;
        esac
    done
}

# Takes out what nothing loads: PyArrow's tests, headers, sources and Flight; where no jobs of others run, its S3 client, too (ours
# is another), those of other stores, ORC and Substrait, botocore's descriptions of other services than S3 and those by which it
# logs in, Pygments' lexers of other languages than Python, SQLGlot's dialects of others than Spark, and libraries' tests. 100 MB.
trim() {
    for packages in "$1"/lib/python*/site-packages; do
        arrow="$packages/pyarrow"
        rm -rf "$arrow/tests" "$arrow/include" "$arrow/includes" "$arrow/src" \
            "$arrow"/libarrow_flight.so* "$arrow"/_flight.* "$arrow"/libarrow_python_flight.so* "$arrow"/*.px[dix] "$arrow"/*.pyx
        if [ ! -d "$packages/pyspark" ]; then
            rm -rf "$arrow"/libarrow_s3.so* "$arrow"/_s3fs.* "$arrow"/_gcsfs.* "$arrow"/_azurefs.* "$arrow"/_hdfs.* \
                "$arrow"/_orc.* "$arrow"/_dataset_orc.* "$arrow"/_substrait.* "$arrow"/_pyarrow_cpp_tests.* "$packages/avro/test" "$packages"/*/tests
            only "$packages/pygments/lexers" __init__ _mapping python special
            for part in dialects generators parsers; do
                only "$packages/sqlglot/$part" __init__ base dialect hive spark2 spark
            done
            for service in "$packages"/botocore/data/*/; do
                case "$(basename "$service")" in
                s3 | sts | sso | sso-oidc | signin) ;;
                *) rm -rf "$service" ;;
                esac
            done
        fi
        for lib in "$arrow"/lib*.so.*.*.*; do
            [ -f "$lib" ] || continue
            # A wheel cannot hold links, so it holds each library under each of its names.
            for twin in "${lib%.*.*}" "${lib%.so.*}.so"; do
                if [ -f "$twin" ] && cmp -s "$twin" "$lib"; then ln -sf "$(basename "$lib")" "$twin"; fi
            done
        done
    done
    "$1/bin/python" -B -c 'import rich.traceback, pyarrow.compute, pyarrow.dataset, pyarrow.fs, pyarrow.json, pyarrow.parquet'
    for sql in "$1"/lib/python*/site-packages/sqlglot; do
        [ ! -d "$sql" ] || "$1/bin/python" -B -c 'import sqlglot; sqlglot.parse_one("a IN (1)", dialect="spark").sql(dialect="spark")'
    done
}

# Sets `spark` to the folder of an environment's Spark, and fetches our packages for it by Spark's own resolver into $work/jars:
# those jars that Spark lacks, under their own names. A mirror is named as to Spark: DEFAULT_ARTIFACT_REPOSITORY, or
# spark.jars.ivySettings in the spark-defaults.conf of SPARK_CONF_DIR. No program of theirs is run.
fetch_jars() {
    command -v java >/dev/null || {
        echo "Spark's resolver needs Java, and there is none on PATH" >&2
        exit 2
    }
    spark="$("$1/bin/python" -c 'import os, pyspark; print(os.path.dirname(os.path.abspath(pyspark.__file__)))')"
    version="$("$1/bin/python" -c 'import pyspark; print(pyspark.__version__)')"
    packages=
    for name in spark-sql-kafka-0-10_2.13 spark-avro_2.13; do packages="$packages,org.apache.spark:$name:$version"; done
    : >"$work/nothing.py"
    # Where builds run, the own host name may not resolve.
    SPARK_LOCAL_IP=127.0.0.1 SPARK_HOME="$spark" PYSPARK_PYTHON="$1/bin/python" "$spark/bin/spark-submit" --master local --packages "${packages#,}" \
        --conf "spark.jars.ivy=$work/ivy" "$work/nothing.py" >"$work/resolver.log" 2>&1 || {
        grep -E 'unresolved dependency|not found|SERVER ERROR|Exception' "$work/resolver.log" | head -n 8 >&2
        echo "Spark can't fetch ${packages#,}: check the network, or name a mirror by DEFAULT_ARTIFACT_REPOSITORY" >&2
        exit 1
    }
    mkdir "$work/jars"
    for jar in "$work"/ivy/jars/*.jar; do
        name="$(basename "$jar")"
        # The resolver puts the organisation before an underscore, which is in no name of one.
        name="${name#*_}"
        if lacks "${name%-[0-9]*.jar}"; then cp "$jar" "$work/jars/$name"; fi
    done
}

# Whether Spark's folder has no jar of a name, in any version.
lacks() {
    for jar_there in "$spark/jars/$1"-[0-9]*.jar; do [ ! -e "$jar_there" ] || return 1; done
}

quiet="--disable-pip-version-check --no-input --quiet"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

case "$1" in
dependencies)
    target="$2"
    # The libraries of S3 are among every service's.
    locks="$3 $(echo "${4:-}" | sed 's/\bs3\b//')"
    for lock in $locks; do
        [ -f "requirements/$lock.txt" ] || {
            echo "no requirements/$lock.txt: images are made of committer, checkpointer, cdc-publisher, producers or console with registry, otel and spark-connect, STORES of s3, gcs, adls" >&2
            exit 2
        }
    done
    python3 -m venv --without-pip "$target"
    set --
    for lock in $locks; do
        split_off_sources "requirements/$lock.txt"
        set -- "$@" -r "$work/$lock.txt"
    done
    pip_into "$target" install $quiet --require-hashes --only-binary :all: "$@"
    if [ -s "$work/sources.txt" ]; then
        build_tools "$work/tools"
        pip_into "$work/tools" wheel $quiet --require-hashes --no-deps --no-build-isolation --no-binary pyspark,faust-streaming \
            -w "$work/wheels" -r "$work/sources.txt"
        pip_into "$target" install $quiet --no-index --no-deps "$work"/wheels/*.whl
    fi
    trim "$target"
    ;;
jars)
    pins="$PWD/requirements/spark-jars.sha256"
    fetch_jars "$2"
    cd "$work/jars"
    sha256sum --check "$pins" >"$work/checked.txt" 2>/dev/null || {
        sed -n "s|^\(.*\): FAILED.*|\1 is not the file whose sha256 is in requirements/spark-jars.sha256|p" "$work/checked.txt" >&2
        echo "the repository serves other jars than were pinned: nothing was taken" >&2
        exit 1
    }
    for jar in *.jar; do
        grep -qF "  $jar" "$pins" || {
            echo "$jar is not in requirements/spark-jars.sha256: \`make lock\` pins it" >&2
            exit 1
        }
    done
    cp ./*.jar "$spark/jars/"
    ;;
jar-sums)
    fetch_jars "$2"
    cd "$work/jars"
    echo "# What \`tidegate ingest\` needs and PySpark lacks: Spark's sources for Kafka and Avro. \`make lock\` makes it."
    sha256sum -- *.jar
    ;;
package)
    target="$2"
    build_tools "$work/tools"
    "$work/tools/bin/python" -m hatchling build -t wheel -d "$work/dist"
    pip_into "$target" install $quiet --no-index --no-deps "$work"/dist/tidegate-*.whl
    ;;
*)
    echo "unknown step: $1" >&2
    exit 2
    ;;
esac
