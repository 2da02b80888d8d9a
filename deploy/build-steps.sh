#!/bin/sh
# The steps that make an image, as the Dockerfile runs them; they need Python, pip and a registry, and no engine.
#   dependencies SERVICE TARGET   an environment in TARGET with exactly what requirements/SERVICE.txt pins
#   package TARGET                tidegate itself, built from this folder, and the program `service`
set -eu

pip_into() {
    into="$1"
    shift
    python3 -m pip --python "$into/bin/python" install --disable-pip-version-check --no-input --quiet "$@"
}

case "$1" in
dependencies)
    service="$2"
    target="$3"
    [ -f "requirements/$service.txt" ] || {
        echo "no requirements/$service.txt: SERVICE is one of committer, checkpointer, cdc-publisher, producers" >&2
        exit 2
    }
    python3 -m venv --without-pip "$target"
    pip_into "$target" --require-hashes --only-binary :all: -r "requirements/$service.txt"
    printf '%s\n' "$service" >"$target/service"
    ;;
package)
    target="$2"
    made="$(mktemp -d)"
    python3 -m venv --without-pip "$made/build"
    pip_into "$made/build" --require-hashes --only-binary :all: -r requirements/build.txt
    "$made/build/bin/python" -m hatchling build -t wheel -d "$made/dist"
    pip_into "$target" --no-index --no-deps "$made"/dist/tidegate-*.whl
    rm -r "$made"
    case "$(cat "$target/service")" in
    # Producers are a library and a command; the others are a process each.
    producers) program='"$here/tidegate"' ;;
    *) program="\"\$here/python\" -m tidegate_$(tr - _ <"$target/service")" ;;
    esac
    printf '#!/bin/sh\nhere="$(dirname "$0")"\nexec %s "$@"\n' "$program" >"$target/bin/service"
    chmod 755 "$target/bin/service"
    ;;
*)
    echo "unknown step: $1" >&2
    exit 2
    ;;
esac
