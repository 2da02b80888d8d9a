from collections.abc import Iterator

import pyarrow as pa
import pytest

from tidegate_runtime.service import arrow_setup


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = pa.default_memory_pool()
    yield
    pa.set_memory_pool(before)


def test_columns_lie_in_jemalloc_unless_configured_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(arrow_setup.CHOSEN, raising=False)
    pa.set_memory_pool(pa.system_memory_pool())

    built_in = "jemalloc" in pa.supported_memory_backends()
    assert arrow_setup.choose_memory_pool() == ("jemalloc" if built_in else "system")
    assert pa.default_memory_pool().backend_name == arrow_setup.choose_memory_pool()


def test_what_the_environment_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(arrow_setup.CHOSEN, "system")
    pa.set_memory_pool(pa.system_memory_pool())

    assert arrow_setup.choose_memory_pool() == "system"
