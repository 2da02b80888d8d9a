"""A case of the judge: a table, its first rows, and a list of verbs; plain values whose `repr`
makes them again.

Values are SQL texts, so that both engines are given the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

Origin = Literal["each", "delta-spark", "delta-rs"]
"""Who writes the first files: each engine its own, or another one the folder that both get."""

NO_OPTIONS: Final[Mapping[str, str]] = {}


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def dotted(path: Sequence[str]) -> str:
    """Return the path of a column as SQL has it."""
    return ".".join(map(quoted, path))


class Plain:
    """A dataclass whose `repr` leaves out what is as by default."""

    def __repr__(self) -> str:
        shown = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)  # type: ignore[arg-type] # its subclasses are dataclasses
            if getattr(self, item.name) != item.default
            and not (item.default_factory is dict and not getattr(self, item.name))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Column(Plain):
    """A column of a new table; `type` is SQL."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    generated: str | None = None
    identity: tuple[int, int] | None = None


@dataclass(frozen=True, repr=False)
class Frame(Plain):
    """Rows of SQL values under names and types."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def sql(self) -> str:
        """Return a query for the rows."""
        if not self.rows:
            nothing = ", ".join(
                f"CAST(NULL AS {kind}) AS {quoted(name)}"
                for name, kind in zip(self.names, self.types, strict=True)
            )
            return f"SELECT {nothing} WHERE false"
        chosen = ", ".join(
            f"CAST(c{at} AS {kind}) AS {quoted(name)}"
            for at, (name, kind) in enumerate(zip(self.names, self.types, strict=True))
        )
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        listed = ", ".join(f"c{at}" for at in range(len(self.names)))
        return f"SELECT {chosen} FROM VALUES {rows} AS v({listed})"


class Verb(Plain):
    """A change of a table."""

    @property
    def kind(self) -> str:
        """The name under which differences are grouped."""
        return type(self).__name__


@dataclass(frozen=True, repr=False)
class Append(Verb):
    rows: Frame
    options: Mapping[str, str] = field(default_factory=dict)
    by_table: bool = False
    """Whether ours is `Table.append`, not `df.write`."""


@dataclass(frozen=True, repr=False)
class Overwrite(Verb):
    rows: Frame
    options: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    condition: str | None = None
    """What is replaced: `replaceWhere`."""
    by_table: bool = True
    """Whether ours is `Table.overwrite` then, not `df.write`."""

    @property
    def kind(self) -> str:
        shown = [name for name in sorted(self.options) if name != "userMetadata"]
        return " ".join(["Overwrite", *shown, *(["where"] if self.condition else [])])


@dataclass(frozen=True, repr=False)
class Delete(Verb):
    condition: str | None = None


@dataclass(frozen=True, repr=False)
class Update(Verb):
    assigned: tuple[tuple[str, str], ...]
    condition: str | None = None


@dataclass(frozen=True, repr=False)
class Clause(Plain):
    """A clause of a merge; without values all columns (`*`), where it assigns any."""

    when: Literal["matched", "not matched", "not matched by source"]
    does: Literal["update", "insert", "delete"]
    assigned: tuple[tuple[str, str], ...] | None = None
    condition: str | None = None


@dataclass(frozen=True, repr=False)
class Merge(Verb):
    """A merge of `s` into `t`; without a frame the source is the table itself."""

    condition: str
    clauses: tuple[Clause, ...]
    rows: Frame | None = None
    evolves: bool = False

    @property
    def kind(self) -> str:
        return "Merge evolving" if self.evolves else "Merge"


@dataclass(frozen=True, repr=False)
class Optimize(Verb):
    where: str | None = None
    order: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "ZOrder" if self.order else "Optimize"


@dataclass(frozen=True, repr=False)
class Restore(Verb):
    """Go back to the version after the verb of this number; -1 is the first rows."""

    step: int


@dataclass(frozen=True, repr=False)
class Clone(Verb):
    """Make a shallow clone, and go on with it."""


@dataclass(frozen=True, repr=False)
class Vacuum(Verb):
    """Delete what the newest version does not need."""


@dataclass(frozen=True, repr=False)
class Alter(Verb):
    """A change of columns or properties: the words of ALTER TABLE, and ours as a method's name and
    its arguments.
    """

    sql: str
    method: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return f"Alter {self.method}"


@dataclass(frozen=True, repr=False)
class AddFeature(Verb):
    feature: str


@dataclass(frozen=True, repr=False)
class StreamRead(Verb):
    """Read the table as a stream from its first version, to the end of what is there."""


@dataclass(frozen=True, repr=False)
class Case(Plain):
    """A table, its first rows, and what is done with it."""

    columns: tuple[Column, ...]
    rows: Frame
    verbs: tuple[Verb, ...] = ()
    by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    clustered: tuple[str, ...] = ()
    origin: Origin = "each"
    in_other_case: bool = False
    """Whether it ends with a log that names its partition columns in another case."""
