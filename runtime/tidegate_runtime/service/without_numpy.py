"""Leaves out NumPy and pandas, for which Arrow looks, and which services do without."""

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class LeftOut(MetaPathFinder):
    """An import finder that hides NumPy and pandas, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for the two; None for all others."""
        if fullname in ("numpy", "pandas"):
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)
        return None
