"""New cases of concurrent transactions, made by combining and changing conflict vectors.

Cases have the form of the vectors, without `expected`; `reads.files` are files read by path only:
delta-spark adds the files that the scans find.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.conformance.oracle_changes import (
    action_of_other,
    app_ids,
    blindness,
    data_change,
    dynamic,
    fewer_winners,
    files_by_path,
    identity_tag,
    more_winners,
    no_commit_info,
    other_loser,
    other_operation,
    other_reads,
    other_winning_operation,
    own_as_winner,
    own_partition_values,
    partition_values,
    predicate,
    statistics,
    whole_table,
    with_domain,
    with_txn,
    without_action,
)
from tests.conformance.oracle_feature_changes import (
    backfilled,
    clusters,
    counts,
    drops_tracking,
    enables,
    maps_names,
    marked,
    numbered,
    other_table,
    out_of_order,
    own_level,
    protects,
    suspended,
    tracked_for_good,
    widens,
)
from tests.conformance.oracle_file_changes import (
    bare_removes,
    duplicate_action,
    more_of_files,
    nobody,
    nothing,
    other_spelling,
    undated,
    with_add,
    with_change_file,
    with_remove,
    with_vector,
)
from tests.conformance.oracle_table_changes import (
    all_features,
    configured,
    drops_feature,
    level_of,
    other_level,
    require_of_rows,
    timed,
    tracked,
    typed,
    unpartitioned,
    with_metadata,
    with_protocol,
)
from tests.conformance.oracle_vectors import Case, Pool


def made_cases(cases: Sequence[Mapping[str, Any]], seed: int) -> Iterator[Case]:
    """Yield an endless sequence of new cases; it depends on the seed only."""
    pool, at = Pool(cases), 0
    while True:
        random = Random(f"{seed}/{at}")
        yield _made(pool, random, f"made/{seed}-{at}")
        at += 1


def _made(pool: Pool, random: Random, name: str) -> Case:
    case = pool.draw(random)
    origin, done, changes = case["name"], [], CHANGES
    if random.random() < 0.15:
        typed(pool, random, case)
        done, changes = ["typed"], CHANGES_OF_TYPED
    elif random.random() < 0.75:
        other_loser(pool, random, case)
        done.append("other_loser")
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        change = random.choice(changes)
        change(pool, random, case)
        done.append(change.__name__.lstrip("_"))
    case["name"], case["why"] = name, f"{origin}: {', '.join(done)}"
    case["isolation"] = level_of(case)
    return case


Change = Callable[[Pool, Random, Case], None]


CHANGES: Final[Sequence[Change]] = (
    other_reads, more_winners, fewer_winners, other_level, other_operation,
    other_winning_operation, blindness, no_commit_info, identity_tag, data_change,
    whole_table, files_by_path, app_ids, with_txn, with_domain, predicate, predicate,
    partition_values, own_partition_values, dynamic, all_features, configured, require_of_rows,
    with_metadata, with_metadata, with_protocol, with_protocol, drops_feature, drops_feature,
    configured, timed, tracked, unpartitioned, without_action,
    action_of_other, own_as_winner, statistics,
    bare_removes, with_remove, with_add, with_vector, with_change_file, duplicate_action,
    other_spelling, more_of_files, nothing, nobody, undated,
    numbered, marked, backfilled, backfilled, enables, enables, maps_names, counts, widens,
    clusters, protects, suspended, drops_tracking, tracked_for_good, own_level, other_table,
    out_of_order,
)  # fmt: skip


CHANGES_OF_TYPED: Final[Sequence[Change]] = (
    other_level, other_operation, blindness, data_change, predicate, partition_values,
    own_partition_values, dynamic, unpartitioned, statistics, with_txn, all_features,
)  # fmt: skip
