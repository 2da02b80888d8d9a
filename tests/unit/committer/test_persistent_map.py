from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.persistent_map import PersistentMap

KEYS = st.integers(0, 6)
CHANGES = st.lists(st.tuples(st.integers(0, 30), st.dictionaries(KEYS, KEYS), st.lists(KEYS)))


def test_a_change_leaves_what_was_there() -> None:
    before = PersistentMap({"a": 1, "b": 2})
    after = before.changed({"c": 3}, drop=["a"])
    assert dict(before) == {"a": 1, "b": 2}
    assert dict(after) == {"b": 2, "c": 3}
    assert "a" in before
    assert "a" not in after


def test_no_change_is_the_same_map() -> None:
    one = PersistentMap({"a": 1})
    assert one.changed({}, drop=["z"]) is one


def test_a_key_that_is_dropped_and_put_is_put() -> None:
    assert dict(PersistentMap({"a": 1}).changed({"a": 2}, drop=["a"])) == {"a": 2}


@given(CHANGES)
def test_every_version_stays_what_it_was(
    changes: list[tuple[int, dict[int, int], list[int]]],
) -> None:
    versions = [(PersistentMap({0: 0}), {0: 0})]
    for place, put, drop in changes:
        one, expected = versions[place % len(versions)]
        kept = {key: value for key, value in expected.items() if key not in drop}
        versions.append((one.changed(put, drop), {**kept, **put}))
    for one, expected in versions:
        assert dict(one) == expected
        assert len(one) == len(expected)
