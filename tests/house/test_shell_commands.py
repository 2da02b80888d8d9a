"""Each line for a shell in a document: `make`, `docker`, `helm`, `kubectl`, `pip` and Python.

The targets, services, charts, values, files, extras and modules that it names are there, and its
options are the tool's. What begins with `tidegate` is in test_commands.py.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from tests.house import dockerfile, tree
from tests.house.test_commands import BLOCKS, DOCUMENTS

MAKE_IN_PROSE = re.compile(r"`(make [a-z][^`\n]*)`")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
CHART = "deploy/helm/tidegate"
COMPOSE = "deploy/compose.yaml"
HELM: Mapping[str, set[str]] = {
    "install": {"--namespace", "--values", "--set", "--wait", "--create-namespace", "--timeout"},
    "upgrade": {"--namespace", "--values", "--set", "--wait", "--install", "--timeout"},
    "rollback": {"--namespace", "--wait"},
    "uninstall": {"--namespace"},
    "history": {"--namespace"},
    "template": {"--namespace", "--values", "--set"},
    "lint": {"--values", "--set", "--strict"},
}
COMPOSE_COMMANDS: Mapping[str, set[str]] = {
    "up": {"--build", "--detach", "--no-build", "--wait"},
    "logs": {"--follow", "--tail", "--no-color"},
    "run": {"--rm"},
    "exec": set(),
    "down": {"--volumes"},
    "ps": {"--all"},
    "config": {"--quiet"},
}
KUBECTL: Mapping[str, set[str]] = {
    "create": {"namespace", "secret", "configmap"},
    "label": {"namespace"},
    "get": {"pods", "secret", "configmap", "deployment", "events"},
    "logs": set(),
    "exec": set(),
    "apply": set(),
    "port-forward": set(),
    "rollout": {"status", "restart", "undo"},
}


@cache
def make_targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    return frozenset(TARGET.findall(tree.text("Makefile")))


@cache
def compose_services() -> frozenset[str]:
    """Return the services of the Compose file."""
    return frozenset(yaml.safe_load(tree.text(COMPOSE))["services"])


def value_exists(key: str) -> bool:
    """Return whether the chart's values have a key such as `image.tag`, or take any below it."""
    result: Any = yaml.safe_load(tree.text(f"{CHART}/values.yaml"))
    for name in key.split("."):
        if not isinstance(result, dict) or (result and name not in result):
            return False
        if not result:
            return True
        result = result[name]
    return True


def commands(block: str) -> Iterator[list[str]]:
    """Yield the words of each command in a block for a shell."""
    for line in re.sub(r"\\\n", " ", block).splitlines():
        for part in re.split(r"&&|\||;", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:  # prose or a program with quotes of its own
                continue
            if words[:1] == ["do"]:
                words = words[1:]
            if words:
                yield words


def of_make(words: list[str]) -> str | None:
    """Check a line of make."""
    makefile = tree.text("Makefile")
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable and not re.search(rf"\$\({name}\)|\$\(if \$\({name}\)|\b{name}\b", makefile):
            return f"the Makefile knows no {name}"
        if not is_variable and re.fullmatch(r"[a-z-]+", name) and name not in make_targets():
            return f"no target {name}"
    return None


def of_docker(words: list[str]) -> str | None:
    """Check a line of docker build or docker compose."""
    if words[0] == "build":
        file, target = (words[words.index(name) + 1] for name in ("-f", "--target"))
        stages = {stage.name for stage in dockerfile.stages(tree.text(file))}
        return None if target in stages or target == "$image" else f"no stage {target}"
    if words[0] != "compose":
        return f"docker {words[0]} is in no document so far: teach this test about it"
    assert words[1:3] == ["-f", COMPOSE]
    command, *rest = words[3:]
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    services = {word for word in rest if not word.startswith("-")}
    if command == "exec":  # the other words are a program's
        services = set(rest[:1])
    if not options <= COMPOSE_COMMANDS.get(command, set()):
        return f"compose {command} has no {options}"
    return None if services <= compose_services() else f"no service among {services}"


def of_helm(words: list[str]) -> str | None:
    """Check a line of helm."""
    verb, *rest = words
    if verb not in HELM:
        return f"no verb {verb}"
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    if not options <= HELM[verb]:
        return f"helm {verb} has no {options - HELM[verb]}"
    charts = [word for word in rest if "/" in word and word.startswith("deploy/")]
    if any(not (tree.ROOT / chart / "Chart.yaml").exists() for chart in charts):
        return f"no chart {charts}"
    given = [rest[at + 1].partition("=")[0] for at, word in enumerate(rest) if word == "--set"]
    absent = [key for key in given if not value_exists(key)]
    return f"the chart has no value {absent}" if absent else None


def of_kubectl(words: list[str]) -> str | None:
    """Check a line of kubectl: its verb, and what it is about."""
    plain = [word for word in words if not word.startswith("-")]
    if words[0] in ("-n", "--namespace"):
        plain = plain[1:]
    verb, *rest = plain
    if verb not in KUBECTL:
        return f"no verb {verb}"
    return f"{verb} {rest[0]}?" if KUBECTL[verb] and rest[0] not in KUBECTL[verb] else None


def of_python(words: list[str]) -> str | None:
    """Check a line of Python: its module or file is there."""
    if words[:1] == ["-m"]:
        return None if find_spec(words[1]) is not None else f"no module {words[1]}"
    # What lies beside a checkout is not ours.
    is_there = words[0].startswith(("-", "../")) or (tree.ROOT / words[0]).exists()
    return None if is_there else f"no file {words[0]}"


def of_pip(words: list[str]) -> str | None:
    """Check a line of pip: the extras are ours."""
    extras = tomllib.loads(tree.text("pyproject.toml"))["project"]["optional-dependencies"]
    named = {
        extra
        for word in words
        for match in re.findall(r"tidegate\[([a-z0-9,-]+)\]", word)
        for extra in match.split(",")
    }
    return f"no extra among {named}" if named - extras.keys() else None


CHECKS = {
    "make": of_make,
    "docker": of_docker,
    "helm": of_helm,
    "kubectl": of_kubectl,
    "python": of_python,
    ".venv/bin/python": of_python,
    "pip": of_pip,
}


def checked(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each line of a document that a check knows, and what is wrong with it, or None."""
    lines = [line for block in BLOCKS.findall(text) for line in commands(block)]
    lines += [shlex.split(line) for line in MAKE_IN_PROSE.findall(BLOCKS.sub("", text))]
    for words in lines:
        check = CHECKS.get(words[0])
        if check is not None and len(words) > 1:
            yield shlex.join(words), check(words[1:])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_line_for_a_shell_names_what_is_there(name: str) -> None:
    wrong = [f"{line}: {why}" for line, why in checked(tree.text(name)) if why]
    assert wrong == []


def test_documents_have_lines_of_each_kind() -> None:
    programs = {shlex.split(line)[0] for name in DOCUMENTS for line, _ in checked(tree.text(name))}
    assert {"make", "docker", "helm", "kubectl"} <= programs


@pytest.mark.parametrize(
    "line",
    [
        "make tset",
        "make test FILE_NAMES=x",
        "docker compose -f deploy/compose.yaml up --builds",
        "docker compose -f deploy/compose.yaml logs demos",
        "docker build -f deploy/Dockerfile --target gate .",
        "helm instal tidegate deploy/helm/tidegate",
        "helm install tidegate deploy/helm/chart",
        "helm upgrade tidegate deploy/helm/tidegate --set image.tags=1",
        "kubectl label namespaced tidegate a=b",
        ".venv/bin/python docs/examples/none.py",
        ".venv/bin/python -m benches",
        "pip install 'tidegate[avro]'",
    ],
)
def test_a_line_that_names_what_is_not_there_is_found(line: str) -> None:
    [(_, why)] = checked(f"```\n{line}\n```\n")
    assert why is not None
