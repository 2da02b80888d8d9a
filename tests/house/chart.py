"""The chart's committed renderings, and what its tests ask of them."""

import importlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from tests.house import tree
from tidegate_runtime.observability import metrics
from tidegate_runtime.service.settings import ServiceSettings

FOLDER = "deploy/helm"
RENDERED = sorted(
    name.removeprefix(f"{FOLDER}/rendered/").removesuffix(".yaml")
    for name in tree.files()
    if name.startswith(f"{FOLDER}/rendered/") and name.endswith(".yaml")
)
"""One for each file of `values/`."""
CUSTOM = json.loads(tree.text(f"{FOLDER}/custom-resources.schema.json"))["$defs"]
TARGET_LABELS = frozenset({"namespace", "pod", "job", "instance", "le"})
"""Labels that a scrape adds, and that of histogram buckets."""


@cache
def _parsed(name: str) -> str:
    return json.dumps(list(filter(None, yaml.safe_load_all(tree.text(name)))))


def resources(name: str) -> list[dict[str, Any]]:
    """Return the resources of a rendering, fresh at each call."""
    result = json.loads(_parsed(f"{FOLDER}/rendered/{name}.yaml"))
    assert result
    return [resource for resource in result if resource is not None]


def of_kind(name: str, *kinds: str) -> list[dict[str, Any]]:
    """Return a rendering's resources of some kinds."""
    return [resource for resource in resources(name) if resource["kind"] in kinds]


def values(name: str) -> dict[str, Any]:
    """Return the values of a rendering, without the chart's defaults."""
    result = yaml.safe_load(tree.text(f"{FOLDER}/values/{name}.yaml"))
    assert isinstance(result, dict)
    return result


def pods(name: str) -> list[dict[str, Any]]:
    """Return the pods' specifications of Deployments and Jobs."""
    return [item["spec"]["template"]["spec"] for item in of_kind(name, "Deployment", "Job")]


def component(resource: dict[str, Any]) -> str:
    """Return the value of a resource's label component."""
    return str(resource["metadata"]["labels"]["app.kubernetes.io/component"])


def settings_of(service: str) -> type[ServiceSettings]:
    """Return the class of a service's settings, or of a job's of `ingest`."""
    package = f"tidegate_{service.replace('-', '_')}"
    if service.startswith("ingest-"):
        package = "tidegate_producers.ingest"
    if service == "maintain":
        package = "tidegate_producers.maintenance"
    module = importlib.import_module(f"{package}.settings")
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, ServiceSettings)
        and kind is not ServiceSettings
    ]
    assert len(kinds) == 1
    return kinds[0]


def exposed() -> dict[str, frozenset[str]]:
    """Return the series that the services expose, with their labels."""
    series: dict[str, frozenset[str]] = {}
    for metric in vars(metrics).values():
        if not isinstance(metric, MetricWrapperBase):
            continue
        labels = frozenset(metric._labelnames)
        name = metric._name
        if isinstance(metric, Counter):
            series[f"{name}_total"] = labels
        elif isinstance(metric, Histogram):
            series[f"{name}_bucket"] = labels | {"le"}
            series |= {f"{name}_sum": labels, f"{name}_count": labels}
        else:
            assert isinstance(metric, Gauge)
            series[name] = labels
    return series


def misread(expression: str) -> list[str]:
    """Return what is wrong with a PromQL expression: unknown series, and labels that none has.

    Raises: ValueError, for what is not PromQL.
    """
    # In requirements/all.txt; an environment of before that lock goes on without these tests.
    promql_parser = pytest.importorskip("promql_parser")
    known = exposed()
    selectors, grouped = [], set()
    for node in _nodes(promql_parser.parse(expression)):
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped |= set(node.modifier.labels)
    wrong = [f"no service exposes {s.name}" for s in selectors if s.name not in known]
    labels = TARGET_LABELS.union(*(known.get(s.name, frozenset()) for s in selectors))
    for selector in selectors:
        own = known.get(selector.name, frozenset()) | TARGET_LABELS
        used = {matcher.name for matcher in selector.matchers.matchers}
        wrong += [f"{selector.name} has no label {name}" for name in sorted(used - own)]
    return wrong + [f"nothing has the label {name}" for name in sorted(grouped - labels)]


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        below = getattr(node, name, None)
        if below is not None:
            for each in below if isinstance(below, list) else [below]:
                yield from _nodes(each)


def dashboards() -> dict[str, dict[str, Any]]:
    """Return Grafana's dashboards by name."""
    folder = f"{FOLDER}/tidegate/files/dashboards/"
    names = [name for name in tree.files() if name.startswith(folder)]
    return {name.removeprefix(folder): json.loads(tree.text(name)) for name in names}


def alerts() -> list[dict[str, str]]:
    """Return the alerts of the chart's file."""
    groups = yaml.safe_load(tree.text(f"{FOLDER}/tidegate/files/alerts.yaml"))["groups"]
    return [rule for group in groups for rule in group["rules"]]
