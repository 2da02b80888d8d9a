"""The read set: what a writer read of the table to make its proposal.

Predicates are trees of nodes with `op`, over physical column paths.

| node | fields |
|---|---|
| `=` `!=` `<` `<=` `>` `>=` `<=>` | `column` (path), `value`, `type` |
| `in` | `column`, `values`, `type` |
| `is_null`, `is_not_null` | `column` |
| `and`, `or` | `args` |
| `not` | `arg` |
| `true` | everything |
| `opaque` | `columns`, `text`: what the grammar can't express; it matches everything |
"""

from collections.abc import Mapping

from pydantic import JsonValue

from tidegate_messages.message import Message
from tidegate_messages.strict_types import Flag, JsonObject

Predicate = Mapping[str, JsonValue]


class ReadSet(Message):
    """What the proposal's rows depend on: files, predicates, applications and metadata domains.

    A proposal without a read set counts as one that read the whole table. An empty read set says
    that nothing was read. `delete_insensitive` says that each written row depends only on the row
    that it replaces (a DELETE or UPDATE without sub-queries over the table), so that deletes of
    other rows by other writers are no conflict.
    """

    whole_table: Flag = False
    predicates: tuple[JsonObject, ...] = ()
    files: tuple[str, ...] = ()
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    delete_insensitive: Flag = False

    @property
    def is_empty(self) -> bool:
        """Whether no row of the table was read."""
        return not (self.whole_table or self.predicates or self.files)
