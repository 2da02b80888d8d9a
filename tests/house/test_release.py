"""`make release` finds every place that names a version, and packs the same bytes each time."""

import importlib.util
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.house import dockerfile, tree


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", tree.ROOT / "deploy/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_that_names_a_version_names_the_same(release: ModuleType) -> None:
    result = release.versions()
    assert len(result) >= 6
    assert set(result.values()) == {release.version()}


def test_another_version_is_found(release: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "version", lambda: "0.2.0")
    wrong = list(release.problems())
    assert any("Chart.yaml appVersion says 0.1.0, pyproject.toml 0.2.0" in item for item in wrong)
    assert any("CHANGELOG.md has no heading `## [0.2.0]" in one for one in wrong)


def test_the_images_context_has_what_the_dockerfile_copies(release: ModuleType) -> None:
    packed = release.context_files(tree.files())
    stages = dockerfile.stages(tree.text("deploy/Dockerfile"))
    copies = [c for s in stages for c in s.of("COPY") if not c.startswith("--from")]
    for source in {source for copy in copies for source in copy.split()[:-1]}:
        assert any(name.startswith(source) for name in packed), source
    assert not [name for name in packed if name.startswith(("tests/", "docs/", "bench/"))]


def test_the_same_tree_gives_the_same_bytes(release: ModuleType, tmp_path: Path) -> None:
    names = ["LICENSE", "deploy/helm/render", "deploy/helm/tidegate/Chart.yaml"]
    below = "deploy/helm/tidegate/"
    made = [
        release.archive(tmp_path / f"{n}.tgz", "tidegate", order, below, "1764000000")
        for n, order in enumerate((names, names[::-1]))
    ]
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as tar:
        modes = {entry.name: entry.mode for entry in tar.getmembers()}
    assert modes == {
        "tidegate/Chart.yaml": 0o644,
        "tidegate/LICENSE": 0o644,
        "tidegate/deploy/helm/render": 0o755,
    }
