"""Requests to stores that fail are repeated at once here: pauses cost time, and show nothing."""

import pytest

from tidegate_runtime.storage import object_store


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_FIRST_PAUSE_S", 0.001)
