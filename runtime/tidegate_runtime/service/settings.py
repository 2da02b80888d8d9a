"""Settings from defaults < YAML file < environment < command line; one error lists all mistakes.

The environment variable `TIDEGATE__SECTION__KEY` sets `section.key`. `KAFKA_BOOTSTRAP_SERVERS` is a
default for `kafka.bootstrap_servers`. One file may serve all services: each ignores the sections of
the others.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.kafka.settings import KafkaSettings

PREFIX: Final = "TIDEGATE__"
NEIGHBOURS: Final = frozenset(
    {"committer", "checkpointer", "cdc", "producers", "console", "ingest", "maintain"}
)
"""Sections that belong to single services: the others ignore them."""
_SECRET: Final = (
    "secret",
    "password",
    "token",
    "credential",
    "account_key",
    "sas",
    "passphrase",
    "key.pem",
)
_PLACES: Final = ("_location", "_url")
"""Settings that say where a secret is: the files of `kafka.security`, a token endpoint."""

_ONE_UNDERSCORE: Final = re.compile(r"TIDEGATE_([A-Z]+)__(\w+)")
_HIDDEN: Final = "**********"
_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
"""The user and password that a URL may hold."""

S = TypeVar("S", bound="ServiceSettings")


class Section(BaseModel):
    """A section of settings; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class HttpSettings(Section):
    """The address of `/healthz`, `/readyz`, `/metrics`. Port 0 takes a free one; null is off."""

    host: str = "127.0.0.1"
    port: int | None = Field(default=0, ge=0, le=65535)
    port_file: Path | None = None
    stalled_s: float = Field(default=60.0, gt=0)
    """Seconds without progress, while work waits, after which `/healthz` fails."""


class LogSettings(Section):
    """Level and format of the log; `auto` is text in a terminal and JSON elsewhere."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["auto", "json", "text"] = "auto"


class TracingSettings(Section):
    """Where spans go: the address of an OpenTelemetry collector (OTLP over HTTP); none is off."""

    otlp_endpoint: str | None = None


class ServiceSettings(BaseModel):
    """The settings that all services share. A service adds its own section in a subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    storage: dict[str, str] = {}
    """Options of the object store, as fsspec names them."""


@dataclass(frozen=True)
class _Given:
    """One value from one source. From the environment and the command line it is untyped text."""

    parts: tuple[str, ...]
    value: object
    origin: str


def load(
    kind: type[S], config: Path | None, overrides: Mapping[str, str], mistakes: Sequence[str] = ()
) -> S:
    """Return the settings of a service; `mistakes` are those that the caller has already found.

    Raises: Misconfigured, listing all mistakes at once, each with its source.
    """
    problems = [*mistakes, *_misspelt(kind, os.environ)]
    tree: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    for setting in (
        *_default_broker(os.environ),
        *_from_file(kind, config, problems),
        *_from_environment(os.environ),
        *_from_overrides(overrides),
    ):
        if setting.parts[0] in NEIGHBOURS - kind.model_fields.keys():
            continue
        try:
            path, value = _resolved(kind, setting.parts, setting.value)
        except LookupError as error:
            problems.append(f"{'.'.join(setting.parts)} ({setting.origin}): {error.args[0]}")
            continue
        _insert(tree, path, value)
        origins[path] = setting.origin
    settings = _validated(kind, tree, origins, problems)
    if settings is None or problems:
        count = len(problems)
        title = "a setting is wrong" if count == 1 else f"{count} settings are wrong"
        raise Misconfigured("\n  ".join([f"{title}; correct and start again:", *problems]))
    return settings


def redacted(settings: BaseModel) -> dict[str, Any]:
    """Return the settings for display, with secrets replaced by stars."""
    starred = _starred(settings.model_dump(mode="json"))
    assert isinstance(starred, dict), "settings are an object"
    return starred


_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")
"""pydantic's error types for a plain value where a section is expected."""


def _validated(
    kind: type[S], tree: dict[str, Any], origins: Mapping[tuple[str, ...], str], problems: list[str]
) -> S | None:
    try:
        return kind(**tree)
    except ValidationError as error:
        for mistake in error.errors(include_url=False, include_input=False, include_context=False):
            path = tuple(str(part) for part in mistake["loc"])
            origin = _origin(path, origins)
            message = mistake["msg"].removeprefix("Value error, ")
            message = message.replace("a valid tuple", "a list, or text with commas")
            if mistake["type"] in _NO_MAPPING:
                message = f"should hold settings of its own, `{path[-1]}.name`, not one value"
            if message[1:2].islower():
                message = message[:1].lower() + message[1:]
            problems.append(f"{'.'.join(path)} ({origin}): {message}")
    return None


def _default_broker(environ: Mapping[str, str]) -> Iterator[_Given]:
    if servers := environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        origin = "environment KAFKA_BOOTSTRAP_SERVERS"
        yield _Given(("kafka", "bootstrap_servers"), servers, origin)


def _from_file(kind: type[BaseModel], config: Path | None, problems: list[str]) -> list[_Given]:
    if config is None:
        return []
    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{config}: cannot be read ({error.strerror}); check the path")
        return []
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problems.append(f"{config}: is no YAML{_line(error)}")
        return []
    if content is None:
        return []
    if not isinstance(content, dict):
        kind_found = type(content).__name__
        problems.append(f"{config}: should hold sections such as `kafka:`, not one {kind_found}")
        return []
    return list(_leaves(kind, content, (), str(config)))


def _line(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """Return where a file stops being YAML, without its text, which may be a secret."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if mark is None:
        return ": it should be text in UTF-8"
    position = f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"{position}: check quotes and indentation at and above it"


def _leaves(
    annotation: Any, content: Mapping[Any, Any], path: tuple[str, ...], origin: str
) -> Iterator[_Given]:
    model = _model(annotation)
    for key, value in content.items():
        field = model.model_fields.get(str(key)) if model else None
        inner = field.annotation if field else _item(annotation)
        if isinstance(value, dict) and (_model(inner) or _item(inner)):
            yield from _leaves(inner, value, (*path, str(key)), origin)
        else:
            yield _Given((*path, str(key)), value, origin)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name, text in sorted(environ.items()):
        if name.upper().startswith(PREFIX):
            parts = tuple(name[len(PREFIX) :].lower().split("__"))
            yield _Given(parts, text, f"environment {name}")


def _misspelt(kind: type[BaseModel], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a mistake for each variable that names a setting with one underscore instead of two.

    Other variables with our prefix are ignored: Kubernetes sets some for each service.
    """
    for name in sorted(environ):
        match = _ONE_UNDERSCORE.fullmatch(name.upper())
        if match and match[1].lower() in NEIGHBOURS | kind.model_fields.keys():
            yield f"environment {name}: is no setting; write {PREFIX}{match[1]}__{match[2]}"


def _from_overrides(overrides: Mapping[str, str]) -> Iterator[_Given]:
    for name, text in overrides.items():
        yield _Given(tuple(name.split(".")), text, "command line")


def _resolved(
    annotation: Any, parts: tuple[str, ...], value: object
) -> tuple[tuple[str, ...], Any]:
    """Return a value's path in the tree of settings, and the value, parsed if it is text.

    Raises: LookupError, with what is wrong and the nearest known name.
    """
    if not parts:
        return (), _read_text(annotation, value)
    model, (head, *rest) = _model(annotation), parts
    if model is not None:
        if head not in model.model_fields:
            raise LookupError(_unknown(head, model.model_fields))
        path, parsed = _resolved(model.model_fields[head].annotation, tuple(rest), value)
        return (head, *path), parsed
    item = _item(annotation)
    if item is not None:
        if _model(item) is None:
            return (".".join(parts),), _read_text(item, value)
        count = _parts_of_key(_model(item), parts, value)
        path, parsed = _resolved(item, parts[count:], value)
        return (".".join(parts[:count]), *path), parsed
    raise LookupError(f"unknown; there is nothing below this setting called {head!r}")


def _parts_of_key(model: type[BaseModel] | None, parts: tuple[str, ...], value: object) -> int:
    """Return how many parts are the key of a mapping of sections; settings of that section follow.

    The key may contain dots, and so may the keys of a mapping in the section:
    `cdc.tables.catalog.schema.table.topic_properties.retention.ms`.
    """
    if model is None:
        return len(parts)
    is_object = isinstance(value, str) and value.startswith("{")
    for count in range(1, len(parts)):
        field = model.model_fields.get(parts[count])
        is_mapping = field is not None and _item(field.annotation) is not None
        if is_mapping and (count + 1 < len(parts) or is_object or isinstance(value, dict)):
            return count
    return len(parts) if len(parts) == 1 or is_object else len(parts) - 1


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(names)}"
    return f"unknown; {hint}"


def _read_text(annotation: Any, value: object) -> object:
    kind = _plain_type(annotation)
    if not isinstance(value, str):
        return json.dumps(value) if kind is str and isinstance(value, int | float) else value
    if NoneType in get_args(annotation) and value.lower() in ("", "null", "none", "off"):
        return None
    is_list = get_origin(kind) in (list, tuple, set, frozenset)
    if (is_list or _model(kind) or _item(kind)) and value[:1] in ("[", "{"):
        try:
            read = json.loads(value)
        except ValueError as error:
            raise LookupError(f"is no JSON: {error}") from error
        if isinstance(read, dict) and _item(kind) is str:
            return {key: _read_text(str, item) for key, item in read.items()}
        return read
    return [part.strip() for part in value.split(",") if part.strip()] if is_list else value


def _insert(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    *above, last = path
    for part in above:
        below = tree.get(part)
        tree = tree.setdefault(part, {}) if below is None else below
    if isinstance(value, dict) and isinstance(tree.get(last), dict):
        tree[last] = {**tree[last], **value}
    else:
        tree[last] = value


def _plain_type(annotation: Any) -> Any:
    """Return an annotation without `Annotated` and `None`."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _plain_type(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def _model(annotation: Any) -> type[BaseModel] | None:
    kind = _plain_type(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _item(annotation: Any) -> Any:
    """Return the type of a mapping's values, or None for any other type."""
    kind = _plain_type(annotation)
    return get_args(kind)[1] if get_origin(kind) in (dict, Mapping) else None


def _origin(path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> str:
    """Return the source of the value at a path, or the first source of a part of it."""
    above = (origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins)
    below = (origin for origin_path, origin in origins.items() if origin_path[: len(path)] == path)
    return next(iter((*above, *below)), "default")


def _starred(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {key: _starred(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_starred(item, name) for item in value]
    is_place = name.lower().endswith(_PLACES)
    is_secret_name = any(word in name.lower() for word in _SECRET) or name.lower() == "key"
    secret = is_secret_name and not is_place
    if secret and value:
        return _HIDDEN
    return _LOGIN.sub(_HIDDEN, value) if isinstance(value, str) else value
