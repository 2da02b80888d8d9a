"""The long tests are spread among the others, so that each process begins with one of them."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the parts of all seeds at even distances: xdist gives each process a stretch of tests."""
    parts = [item for item in items if item.name.startswith("test_every_seed_keeps")]
    others = [item for item in items if item not in parts]
    stretch = -(-len(items) // max(1, len(parts)))
    for number, part in enumerate(parts):
        others.insert(number * stretch, part)
    items[:] = others
