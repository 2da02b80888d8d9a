"""`Table.merge`: a builder like delta-spark's, whose clauses become one change of rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Literal

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType
from pyspark.sql.utils import is_remote

from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.data_skipping.partition_predicates import Predicate
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import FieldPath, same_name
from tidegate_delta.schema.types import StructType as Fields
from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.table.clause_names import SOURCE, TARGET, JoinedColumns
from tidegate_producers.table.identity_values import check_not_numbered, generated
from tidegate_producers.table.new_rows import (
    Expression,
    as_column,
    assigned_path,
    by_column,
    stored,
)
from tidegate_producers.table.row_changes import ACTION, DELETED, INSERTED, UPDATED
from tidegate_producers.table.row_level_change import NewRows, Opened, RowChange
from tidegate_producers.table.target_frame import (
    ABOUT_ROWS,
    FILE,
    POSITION,
    quoted,
    table_columns,
)
from tidegate_producers.table.update import aliased, text_of
from tidegate_runtime.conditions.sql_condition import is_row_by_row, merge_predicate_of

Kind = Literal["matched", "not matched", "not matched by source"]

_CLAUSE: Final = "__tidegate_clause"
_VALUE: Final = "__tidegate_value_{}_{}"
_EXPLAIN: Final = "_explain_string"
"""A method of Spark Connect's DataFrames alone."""

_FORMAT: Final = "tidegate"
"""Plans show it as the name of our data source, and in the names of the columns of Table.to_df."""

_IS_SOURCE: Final = "__tidegate_is_source"
_SOURCE_ROW: Final = "__tidegate_source_row"
_ACTION_NAMES: Final = {DELETED: "delete", UPDATED: "update", INSERTED: "insert"}
_PARAMETERS: Final[Mapping[Kind, str]] = {
    "matched": "matchedPredicates",
    "not matched": "notMatchedPredicates",
    "not matched by source": "notMatchedBySourcePredicates",
}


@dataclass(frozen=True)
class Clause:
    """One clause: which rows, and what happens to them; `values` None takes the source's row."""

    kind: Kind
    action: int
    condition: Expression | None = None
    values: Mapping[str, Expression] | None = None


class MergeBuilder:
    """Collects the clauses of a merge, and executes it; the names are delta-spark's."""

    def __init__(
        self,
        source: DataFrame,
        condition: Expression,
        execute: Callable[[RowChange, int | None], int | None],
        zone: str = "UTC",
    ) -> None:
        self._source = source
        self._condition = condition
        self._execute = execute
        self._zone = zone
        self._alias: str | None = None
        self._clauses: list[Clause] = []
        self._evolves = False

    def of(self, alias: str | None) -> "MergeBuilder":
        """Set the alias of the target."""
        self._alias = alias
        return self

    def whenMatchedUpdate(  # noqa: N802
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> "MergeBuilder":
        """Update columns of matched rows."""
        return self._add(Clause("matched", UPDATED, condition, _given(set, "set")))

    def whenMatchedUpdateAll(  # noqa: N802
        self, condition: Expression | None = None
    ) -> "MergeBuilder":
        """Update every column of matched rows with the source's column of its name."""
        return self._add(Clause("matched", UPDATED, condition))

    def whenMatchedDelete(self, condition: Expression | None = None) -> "MergeBuilder":  # noqa: N802
        """Delete matched rows."""
        return self._add(Clause("matched", DELETED, condition))

    def whenNotMatchedInsert(  # noqa: N802
        self,
        condition: Expression | None = None,
        values: Mapping[str, Expression] | None = None,
    ) -> "MergeBuilder":
        """Insert a row for each source row without a match."""
        return self._add(Clause("not matched", INSERTED, condition, _given(values, "values")))

    def whenNotMatchedInsertAll(  # noqa: N802
        self, condition: Expression | None = None
    ) -> "MergeBuilder":
        """Insert each source row without a match."""
        return self._add(Clause("not matched", INSERTED, condition))

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> "MergeBuilder":
        """Update columns of the table's rows without a match."""
        clause = Clause("not matched by source", UPDATED, condition, _given(set, "set"))
        return self._add(clause)

    def whenNotMatchedBySourceDelete(  # noqa: N802
        self, condition: Expression | None = None
    ) -> "MergeBuilder":
        """Delete the table's rows without a match."""
        return self._add(Clause("not matched by source", DELETED, condition))

    def withSchemaEvolution(self) -> "MergeBuilder":  # noqa: N802
        """Add the source's columns that UpdateAll, InsertAll or an assignment names to the table.

        Types become wider, too, where the table has `delta.enableTypeWidening`. Columns that the
        source lacks stay as they are in UpdateAll, and are null or their default in InsertAll.
        """
        self._evolves = True
        return self

    def execute(self, batch_id: int | None = None) -> int | None:
        """Merge, and return the new version, or None if no row and no column changed.

        With `batch_id` it is done once, as `Table.delete` says. When another commit overtakes it,
        it runs again on the newest version, unless the source was read from a table through us.
        Raises: Rejected; OutcomeUnknown; InvalidRequest; UnsupportedFeature; Spark's errors.
        """
        check_clauses(self._clauses)
        text = MergeText(self._condition, self._alias, self._evolves, self._zone)
        change = merging(self._source, self._clauses, text)
        # A source that was read from a table of ours may be older than the next version.
        is_apart = not may_read_a_table(self._source)
        change = replace(
            change,
            depends_on_table_only=is_apart,
            is_row_by_row=is_apart and change.is_row_by_row,
        )
        return self._execute(change, batch_id)

    def _add(self, clause: Clause) -> "MergeBuilder":
        self._clauses.append(clause)
        return self


def may_read_a_table(source: DataFrame) -> bool:
    """Return whether a DataFrame's plan reads a table through us, as far as the plan shows it."""
    if is_remote():
        explain: Callable[..., str] = getattr(source, _EXPLAIN)
        return _FORMAT in explain(extended=True)
    return _FORMAT in source._jdf.queryExecution().analyzed().toString()


def check_clauses(clauses: Sequence[Clause]) -> None:
    """Check that there are clauses, and that only the last of each kind has no condition.

    Raises: InvalidRequest.
    """
    if not clauses:
        raise InvalidRequest(
            "a merge needs a clause, such as whenMatchedUpdateAll() or whenNotMatchedInsertAll(); "
            "nothing was proposed",
            error_class="DELTA_MERGE_MISSING_WHEN",
        )
    for kind in _PARAMETERS:
        of_kind = [clause for clause in clauses if clause.kind == kind]
        if any(clause.condition is None for clause in of_kind[:-1]):
            raise InvalidRequest(
                f"when there are several 'when {kind}' clauses, only the last may lack a "
                "condition: give the others one; nothing was proposed",
                error_class="DELTA_NON_LAST_"
                + kind.upper().replace(" ", "_")
                + "_CLAUSE_OMIT_CONDITION",
            )


@dataclass(frozen=True)
class MergeText:
    """A merge's condition, the alias of its target, whether the table gets new columns, and the
    time zone of timestamps without one.
    """

    condition: Expression
    alias: str | None = None
    evolves: bool = False
    zone: str = "UTC"


def merging(source: DataFrame, clauses: Sequence[Clause], text: MergeText) -> RowChange:
    """Return the change of rows that a merge makes."""

    def changed(frame: DataFrame, opened: Opened) -> NewRows:
        _check_by_source(aliased(frame, text.alias), clauses)
        columns = JoinedColumns(source.columns, opened.schema.names, text.alias)
        resolved = [_resolved(clause, columns) for clause in clauses]
        return _changed(frame, opened, source, resolved, text)

    def evolving(table: Fields) -> Fields:
        new_rows = [clause for clause in clauses if clause.kind != "not matched by source"]
        names = [name for clause in new_rows for name in clause.values or {}]
        paths = {
            tuple(
                part.lower()
                for part in assigned_path(name, (*table.names, *source.columns), text.alias)
            )
            for name in names
        }
        return from_spark(_migrating(source.schema, paths, takes_all=_has_star(new_rows)))

    return RowChange(
        "MERGE",
        text_of(text.condition),
        lambda table: _reads(table, source.columns, clauses, text),
        changed,
        _parameters(clauses),
        is_row_by_row=_is_row_by_row(clauses, text.condition),
        evolving=evolving if text.evolves else None,
    )


def _check_by_source(target: DataFrame, clauses: Sequence[Clause]) -> None:
    """Have Spark refuse a "not matched by source" clause that needs more than the table's columns.

    In the joined frame a column of the source would be null without a word.
    """
    by_source = [clause for clause in clauses if clause.kind == "not matched by source"]
    needed = [
        expression
        for clause in by_source
        for expression in (clause.condition, *(clause.values or {}).values())
    ]
    columns = [F.expr(each) if isinstance(each, str) else each for each in needed]
    # What is no column is refused by name later.
    given = [each for each in columns if isinstance(each, Column)]
    if given:
        # Asked for its schema, Spark resolves the names.
        _ = target.select(*given).schema


def _is_row_by_row(clauses: Sequence[Clause], condition: Expression) -> bool:
    """Return whether rows that others delete matter only where the merge changes them itself.

    A source row is inserted if no row matches. If another commit deletes a row that matched and
    that no clause changed, its source row is one to insert: so all matched rows must be changed.
    """
    values = [value for clause in clauses for value in (clause.values or {}).values()]
    conditions = [clause.condition for clause in clauses if clause.condition is not None]
    inserts = any(clause.kind == "not matched" for clause in clauses)
    changes_all = any(clause.kind == "matched" and clause.condition is None for clause in clauses)
    return (changes_all or not inserts) and all(
        is_row_by_row(text_of(expression)) for expression in (condition, *conditions, *values)
    )


def _has_star(clauses: Sequence[Clause]) -> bool:
    return any(clause.values is None and clause.action != DELETED for clause in clauses)


def _migrating(
    source: StructType, assigned: Collection[FieldPath], *, takes_all: bool, above: FieldPath = ()
) -> StructType:
    """Return the columns of a source that the table shall have: those whose paths are assigned, in
    lower case, or all that a clause with a star takes.
    """
    fields = []
    for field in source.fields:
        path = (*above, field.name.lower())
        leads = any(known[: len(path)] == path for known in assigned)
        if path in assigned or (takes_all and not isinstance(field.dataType, StructType)):
            fields.append(field)
        elif isinstance(field.dataType, StructType) and (leads or takes_all):
            inner = _migrating(field.dataType, assigned, takes_all=takes_all, above=path)
            if inner.fields:
                fields.append(StructField(field.name, inner, field.nullable, field.metadata))
    return StructType(fields)


def _resolved(clause: Clause, columns: JoinedColumns) -> Clause:
    """Return a clause whose SQL texts name columns as the joined frame has them."""

    def text(expression: Expression) -> Expression:
        if not isinstance(expression, str) or clause.kind == "matched":
            return expression
        if clause.kind == "not matched":
            return columns.of_source(expression)
        return columns.of_target(expression)

    return replace(
        clause,
        condition=None if clause.condition is None else text(clause.condition),
        values=None
        if clause.values is None
        else {name: text(value) for name, value in clause.values.items()},
    )


def _reads(
    table: Fields, source: Sequence[str], clauses: Sequence[Clause], text: MergeText
) -> Predicate:
    """Return which rows of the table a merge may match, or change because nothing matches them."""
    if isinstance(text.condition, str) and all(
        clause.kind != "not matched by source" for clause in clauses
    ):
        return merge_predicate_of(text.condition, table, source, text.alias, text.zone)
    return {"op": "opaque", "columns": [], "text": "merge"}


def _changed(
    frame: DataFrame,
    opened: Opened,
    source: DataFrame,
    clauses: Sequence[Clause],
    text: MergeText,
) -> NewRows:
    columns = opened.schema.names
    given_by = [
        _given_values(clause, table_columns(frame.schema), source, opened.required, text)
        for clause in clauses
    ]
    for clause, values in zip(clauses, given_by, strict=True):
        _check_identities(clause, list(values), opened.required)
    joined = _joined(frame, source, clauses, text)
    is_target = F.col(FILE).isNotNull()
    rows = joined.withColumn(_CLAUSE, _number(clauses)).where(F.col(_CLAUSE).isNotNull())
    if _deletes_every_match(clauses):
        source_row = F.when(is_target, F.lit(-1)).otherwise(F.monotonically_increasing_id())
        rows = rows.withColumn(_SOURCE_ROW, source_row)
        rows = rows.dropDuplicates([FILE, POSITION, _SOURCE_ROW])
    action = F.element_at(
        F.array(*(F.lit(clause.action) for clause in clauses)), F.col(_CLAUSE) + 1
    )
    rows, given_by = _evaluated(rows, clauses, given_by)
    fitted = []
    for clause, given_values in zip(clauses, given_by, strict=True):
        values = _values(clause, columns, given_values, opened.required)
        is_update_all = clause.action == UPDATED and clause.values is None
        old = _target_columns(columns) if text.evolves and is_update_all else {}
        columns_of = stored(rows, values, frame.schema, fills=text.evolves, old=old)
        fitted.append(dict(zip(values, columns_of, strict=True)))
    new = [
        reduce(
            lambda otherwise, index: F.when(
                F.col(_CLAUSE) == index, fitted[index].get(name, F.lit(None))
            ).otherwise(otherwise),
            range(len(clauses)),
            F.lit(None).cast(frame.schema[name].dataType),
        ).alias(name)
        for name in columns
    ]
    explicit = sorted({name for values in given_by for name in values})
    before = (F.col(TARGET.format(index)) for index in range(len(columns)))
    selected = rows.select(action.alias(ACTION), FILE, POSITION, *new, *opened.kept(before))
    return NewRows(selected, explicit)


def _evaluated(
    rows: DataFrame, clauses: Sequence[Clause], given_by: Sequence[dict[str, Column]]
) -> tuple[DataFrame, list[dict[str, Column]]]:
    """Return rows with a column for each value that a clause is given, and these columns.

    So each is evaluated once a row: what is checked of a `uuid()` is what is stored.
    """
    columns: dict[str, Column] = {}
    evaluated: list[dict[str, Column]] = []
    for index, (clause, values) in enumerate(zip(clauses, given_by, strict=True)):
        if clause.values is None:
            evaluated.append(values)
            continue
        names = {name: _VALUE.format(index, at) for at, name in enumerate(values)}
        applies = F.col(_CLAUSE) == index
        columns |= {names[name]: F.when(applies, value) for name, value in values.items()}
        evaluated.append({name: F.col(column) for name, column in names.items()})
    return rows.withColumns(columns) if columns else rows, evaluated


def _number(clauses: Sequence[Clause]) -> Column:
    """Return the number of the first clause that applies to a joined row, or null."""
    is_target, is_source = F.col(FILE).isNotNull(), F.col(_IS_SOURCE).isNotNull()
    applies = {
        "matched": is_target & is_source,
        "not matched": is_source & ~is_target,
        "not matched by source": is_target & ~is_source,
    }
    return F.coalesce(
        *(
            F.when(applies[clause.kind] & _condition(clause), F.lit(index))
            for index, clause in enumerate(clauses)
        )
    )


def _condition(clause: Clause) -> Column:
    return F.lit(True) if clause.condition is None else as_column(clause.condition, "condition")


def _check_identities(
    clause: Clause, given_columns: Sequence[str], required: WriteRequirements
) -> None:
    """Refuse values for identity columns that a clause may not give. Raises: InvalidRequest."""
    if clause.action == UPDATED:
        check_not_numbered(given_columns, required.identities)
    if clause.action == INSERTED:
        generated(required.identities, given_columns)


def _joined(
    frame: DataFrame, source: DataFrame, clauses: Sequence[Clause], text: MergeText
) -> DataFrame:
    kinds = {clause.kind for clause in clauses}
    join_type = {
        (False, False): "inner",
        (True, False): "right_outer",
        (False, True): "left_outer",
        (True, True): "full_outer",
    }["not matched" in kinds, "not matched by source" in kinds]
    names = [name for name in frame.columns if name not in ABOUT_ROWS]
    left = aliased(frame, text.alias)
    left = left.select(
        "*",
        *(F.col(quoted(name)).alias(TARGET.format(index)) for index, name in enumerate(names)),
    )
    right = source.select(
        "*",
        *(
            F.col(quoted(name)).alias(SOURCE.format(index))
            for index, name in enumerate(source.columns)
        ),
        F.lit(True).alias(_IS_SOURCE),
    )
    return left.join(right, as_column(text.condition, "condition"), join_type)


def _deletes_every_match(clauses: Sequence[Clause]) -> bool:
    """Return whether several matches of a row are no doubt: it is deleted in any case."""
    matched = [clause for clause in clauses if clause.kind == "matched"]
    return len(matched) == 1 and matched[0].action == DELETED and matched[0].condition is None


def _values(
    clause: Clause,
    columns: Sequence[str],
    given_values: Mapping[str, Column],
    required: WriteRequirements,
) -> dict[str, Column]:
    """Return the value of each column for the rows of a clause."""
    if clause.action == DELETED:
        return {}
    if clause.action == UPDATED:
        return {**_target_columns(columns), **given_values}
    defaults = {default.column: F.expr(default.expression) for default in required.defaults}
    return {name: given_values.get(name, defaults.get(name, F.lit(None))) for name in columns}


def _target_columns(columns: Sequence[str]) -> dict[str, Column]:
    return {name: F.col(TARGET.format(index)) for index, name in enumerate(columns)}


def _given_values(
    clause: Clause,
    table: StructType,
    source: DataFrame,
    required: WriteRequirements,
    text: MergeText,
) -> dict[str, Column]:
    """Return the columns to which a clause gives a value, and the values."""
    if clause.action == DELETED:
        return {}
    columns = table.names
    if clause.values is not None:
        current = {} if clause.action == INSERTED else _target_columns(columns)
        return by_column(clause.values, table, f"when {clause.kind}", current, text.alias)
    values = {}
    may_lack = {column.column for column in required.generated}
    may_lack |= {column.column for column in required.defaults}
    may_lack |= {column.column for column in required.identities}
    for name in columns:
        index = next(
            (
                index
                for index, source_column in enumerate(source.columns)
                if same_name(source_column, name)
            ),
            None,
        )
        if index is not None:
            values[name] = F.col(SOURCE.format(index))
        elif not text.evolves and (clause.action == UPDATED or name not in may_lack):
            raise InvalidRequest(
                f"the source has no column {name!r}, which UpdateAll and InsertAll take from it; "
                f"it has {', '.join(source.columns)}: add it, name the columns in set or values, "
                "or call withSchemaEvolution(); nothing was proposed",
                error_class="DELTA_MERGE_UNRESOLVED_EXPRESSION",
            )
    return values


def _given(values: Mapping[str, Expression] | None, name: str) -> Mapping[str, Expression]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} is a mapping of columns to expressions, and is required")
    return values


def _parameters(clauses: Sequence[Clause]) -> dict[str, str]:
    parameters = {}
    for kind, name in _PARAMETERS.items():
        listed = [
            {
                **({} if clause.condition is None else {"predicate": text_of(clause.condition)}),
                "actionType": _ACTION_NAMES[clause.action],
            }
            for clause in clauses
            if clause.kind == kind
        ]
        parameters[name] = orjson.dumps(listed).decode()
    return parameters
