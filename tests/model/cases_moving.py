"""Cases of tables that move between topic partitions."""

from typing import Any, Final

from tests.model.cases import Case
from tests.model.moving import Moving, MovingSetting


def moving(**setting: Any) -> Moving:
    """Return the model of a table that moves."""
    return Moving(MovingSetting(**setting))


MOVING: Final = (
    Case(
        "move.there",
        "two writers, a late record and a takeover: all is promised and published once",
        moving(),
        asks_progress=True,
    ),
    Case(
        "move.back",
        "the same with a move there and back",
        moving(moves=(1, 0)),
        asks_progress=True,
    ),
    Case(
        "bad.move-unnumbered",
        "who had lost the table publishes it once more, and takes it back",
        moving(numbers=False),
        "NotUndone",
    ),
    Case(
        "bad.move-replaced",
        "a record of a lower number replaces the one of a move back",
        moving(moves=(1, 0), keeps=False),
        "NotUndone",
    ),
    Case(
        "bad.move-withdraws",
        "the old record is taken back behind a move back",
        moving(moves=(1, 0), withdraws=True),
        "NotUndone",
    ),
    Case(
        "bad.move-forgets",
        "a request that is delivered again moves the table once more",
        moving(moves=(1, 0), remembers=False),
        "NotUndone",
    ),
    Case(
        "bad.move-unflushed",
        "the registration counts versions that are not published yet, and the owner dies",
        moving(proposals=1, flushes=False),
        "Trapped",
    ),
    Case(
        "bad.move-unread",
        "the new owner denies by what it read before the move, for ever",
        moving(proposals=1, reads_again=False),
        "Trapped",
    ),
    Case(
        "bad.move-by-offset",
        "the new owner does not know what the old one committed by its id",
        moving(knows_ids=False),
        "ExactlyOnce",
    ),
)
