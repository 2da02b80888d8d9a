"""The read set: what a writer looked at before it proposed.

Predicates are the tree of the conflict vectors: nodes with `op`, over physical column paths.

| node | fields |
|---|---|
| `=` `!=` `<` `<=` `>` `>=` `<=>` | `column` (path), `value`, `type` |
| `in` | `column`, `values`, `type` |
| `is_null`, `is_not_null` | `column` |
| `and`, `or` | `args` |
| `not` | `arg` |
| `true` | everything |
| `opaque` | `columns`, `text`: what the grammar can't say; it matches everything |
"""

from collections.abc import Mapping

from pydantic import JsonValue

from tidegate.pipeline.message import Message

Predicate = Mapping[str, JsonValue]


class ReadSet(Message):
    """Files, predicates and applications that the proposal's outcome depends on.

    An absent read set means that the whole table was read; an empty one, that nothing was.
    `delete_insensitive` says that each row the proposal writes depends on the one row that it
    deletes or replaces and on no other, so that rows which others delete make no difference to it:
    a DELETE or UPDATE without sub-queries over the table, for one.
    """

    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    files: tuple[str, ...] = ()
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    delete_insensitive: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no row of the table was looked at."""
        return not (self.whole_table or self.predicates or self.files)
