"""Makes a release: wheel, sdist, the images' context, the chart, the log store for delta-spark, and
their checksums, in `dist/`.

    make release        # python deploy/release.py [FOLDER]

Nothing is published. Everything that names a version must name the same one, and the tree must be
as committed. The same commit gives the same bytes.
"""

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
CHART = "deploy/helm/tidegate"
CONTEXT = "deploy/Dockerfile.dockerignore"
JAR = "producers/tidegate_producers/tidegate-log-store.jar"
"""Made by `make env`, and not in the repository."""


def git(*argv: str) -> str:
    """Return what git printed."""
    process = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    return process.stdout.strip()


def text(name: str) -> str:
    """Return a file's content."""
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    """Return the version that pyproject.toml names."""
    return str(tomllib.loads(text("pyproject.toml"))["project"]["version"])


def versions() -> dict[str, str]:
    """Return every place that names a version, and which."""
    chart = yaml.safe_load(text(f"{CHART}/Chart.yaml"))
    stated_versions = {
        "pyproject.toml": version(),
        f"{CHART}/Chart.yaml version": chart["version"],
        f"{CHART}/Chart.yaml appVersion": chart["appVersion"],
    }
    arguments = re.findall(r"^ARG VERSION=(.+)$", text("deploy/Dockerfile"), re.MULTILINE)
    stated_versions |= {
        f"deploy/Dockerfile VERSION ({n})": version_text
        for n, version_text in enumerate(arguments, 1)
    }
    golden = sorted(
        p.name for p in (ROOT / "tests/golden").iterdir() if (p / "messages.json").exists()
    )
    stated_versions["tests/golden/, the newest"] = golden[-1] if golden else "none"
    rendered = re.findall(
        r"app\.kubernetes\.io/version: \"(.+)\"", text("deploy/helm/rendered/plain.yaml")
    )
    stated_versions["deploy/helm/rendered/plain.yaml"] = "".join(sorted(set(rendered)))
    return stated_versions


def problems() -> Iterator[str]:
    """Yield what keeps this tree from being released."""
    for place, stated_version in versions().items():
        if stated_version != version():
            yield f"{place} says {stated_version}, pyproject.toml {version()}"
    if not re.search(
        rf"^## \[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d$", text("CHANGELOG.md"), re.M
    ):
        yield f"CHANGELOG.md has no heading `## [{version()}] - YYYY-MM-DD`"
    if not (ROOT / JAR).is_file():
        yield f"{JAR} is not there: install a JDK, then run make env"
    if changed := git("status", "--porcelain"):
        yield f"the tree is not as committed:\n{changed}"


def build_python(folder: Path, epoch: str) -> list[Path]:
    """Build sdist and wheel, the wheel from the tree; return both."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(command, cwd=ROOT, check=True, env=environment, capture_output=True)
    return [
        folder / f"tidegate-{version()}.tar.gz",
        folder / f"tidegate-{version()}-py3-none-any.whl",
    ]


def archive(target: Path, inside: str, names: Iterable[str], below: str, epoch: str) -> Path:
    """Write files of the tree into a tar.gz, below a folder of its own, in a fixed order."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            data = (ROOT / name).read_bytes()
            entry = tarfile.TarInfo(f"{inside}/{name.removeprefix(below)}")
            entry.size, entry.mtime = len(data), int(epoch)
            entry.mode = 0o755 if os.access(ROOT / name, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(data))
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, int(epoch)) as packed:
        packed.write(content.getvalue())
    return target


def context_files(tracked: Iterable[str]) -> list[str]:
    """Return what the Dockerfiles copy, by the ignore file, and the Dockerfile itself."""
    allowed = [line[1:] for line in text(CONTEXT).splitlines() if line.startswith("!")]
    patterns = [
        re.compile(re.escape(pattern).replace(r"\*\*", ".+").replace(r"\*", "[^/]+"))
        for pattern in allowed
    ]
    files = [name for name in tracked if any(p.fullmatch(name) for p in patterns)]
    return [*files, "deploy/Dockerfile", CONTEXT, "deploy/compose.yaml"]


def mismatches(files: list[Path]) -> Iterator[str]:
    """Yield what in the finished files is not of this version."""
    sdist, wheel, context, chart = files
    with zipfile.ZipFile(wheel) as content:
        metadata_text = content.read(f"tidegate-{version()}.dist-info/METADATA").decode()
        if JAR.removeprefix("producers/") not in content.namelist():
            yield f"{wheel.name} has no log store"
    if f"\nVersion: {version()}\n" not in metadata_text:
        yield f"{wheel.name} says another version"
    inside = {
        sdist: f"tidegate-{version()}/pyproject.toml",
        context: f"tidegate-{version()}/deploy/Dockerfile",
        chart: "tidegate/Chart.yaml",
    }
    for file, name in inside.items():
        with tarfile.open(file) as tar:
            if name not in tar.getnames():
                yield f"{file.name} has no {name}"


def main(folder: Path) -> int:
    """Make the release, and return the exit status."""
    if found_problems := list(problems()):
        sys.stderr.write(
            "release: not made:\n" + "".join(f"  {problem}\n" for problem in found_problems)
        )
        return 2
    epoch = git("log", "-1", "--format=%ct")
    tracked = git("ls-files").splitlines()
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tidegate-{version()}"
    files = [
        *build_python(folder, epoch),
        archive(folder / f"{name}-images.tar.gz", name, [*context_files(tracked), JAR], "", epoch),
        archive(
            folder / f"{name}.tgz",
            "tidegate",
            [path for path in tracked if path.startswith(f"{CHART}/")],
            f"{CHART}/",
            epoch,
        ),
    ]
    if wrong := list(mismatches(files)):
        sys.stderr.write(
            "release: made, and wrong:\n" + "".join(f"  {mismatch}\n" for mismatch in wrong)
        )
        return 3
    log_store = folder / f"{Path(JAR).stem}-{version()}.jar"
    log_store.write_bytes((ROOT / JAR).read_bytes())
    files.append(log_store)
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    for line in sums:
        sys.stdout.write(line)
    sys.stdout.write(
        f"\n{name} of {git('rev-parse', '--short', 'HEAD')} is in {folder}. To publish it:\n"
        f"  git tag -s v{version()} && git push origin v{version()}\n"
        f"  twine upload {folder}/{name}-py3-none-any.whl {folder}/{name}.tar.gz\n"
        f"  helm push {folder}/{name}.tgz oci://REGISTRY/charts\n"
        f"  each image, in the unpacked {name}-images.tar.gz: docker build -f deploy/Dockerfile "
        f"--target IMAGE -t REGISTRY/IMAGE:{version()} ., then docker push\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
