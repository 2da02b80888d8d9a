"""Apache Kafka's jars: downloaded once by PySpark's Ivy, each checked against its pinned sha256."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_runtime.release import KAFKA_VERSION

SCALA_VERSION: Final = "2.13"
JAVA_MIN: Final = 17
CACHE: Final = "TIDEGATE_CACHE"
IVY_SETTINGS: Final = "TIDEGATE_IVY_SETTINGS"
SPACE_MIN_BYTES: Final = 256 * 1024 * 1024
ShowProgress = Callable[[str], None]

_PINS: Final = Path(__file__).with_name("jars.sha256")
_PATIENCE: Final = (
    "-Dsun.net.client.defaultConnectTimeout=20000",
    "-Dsun.net.client.defaultReadTimeout=60000",
)
_INSTEAD: Final = "or set KAFKA_BOOTSTRAP_SERVERS to a Kafka that runs"


def pinned_jars() -> dict[str, str]:
    """Return the sha256 of each jar by its file name."""
    lines = _PINS.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {f"{name}-{version}.jar": digest for name, version, digest in rows}


def cache_folder() -> Path:
    """Return the folder for downloads: TIDEGATE_CACHE, else the user's cache folder."""
    configured = os.environ.get(CACHE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(configured) if configured else Path(base) / "tidegate"


def ensure_jars(show_progress: ShowProgress) -> Path:
    """Return the folder with the broker's jars, downloading them if it does not exist.

    Law: the folder's content was checked before it got this name.
    Raises: Misconfigured, for no Java, no PySpark, no disk space or a jar that is not the pinned
        one; Unavailable, if the registry does not answer.
    """
    folder = cache_folder() / "kafka" / KAFKA_VERSION
    if _is_complete(folder):
        return folder
    with _locked(folder.with_name(f"{KAFKA_VERSION}.lock")):
        if not _is_complete(folder):
            _check_space(folder.parent)
            _fetch(folder, show_progress)
    return folder


def java_command() -> str:
    """Return the path of a Java that can run the broker.

    Raises: Misconfigured, if there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    searched = f"JAVA_HOME={home}" if home else "PATH"
    remedy = f"install Java {JAVA_MIN} or newer (a JRE is enough) and put it on PATH"
    if java is None:
        raise Misconfigured(f"there is no Java ({searched}): {remedy}, {_INSTEAD}")
    process = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    if match is None:
        raise Misconfigured(f"`{java} -version` prints no version: {remedy}, {_INSTEAD}")
    if int(match[1]) < JAVA_MIN:
        raise Misconfigured(f"{java} is Java {match[1]}, too old for Kafka: {remedy}, {_INSTEAD}")
    return java


def pyspark_jars() -> Path | None:
    """Return the folder of PySpark's jars without importing it, or None if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "jars"
    return folder if folder.is_dir() else None


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in pinned_jars())


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < SPACE_MIN_BYTES:
        raise Misconfigured(
            f"{folder} has {free // 2**20} MiB free, Kafka's jars need {SPACE_MIN_BYTES // 2**20}; "
            f"make room or set {CACHE} to a folder elsewhere"
        )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let one process at a time download; the lock ends with the process that holds it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.open("w", encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f"the cache {file.parent} cannot be written ({error.strerror}); set {CACHE} elsewhere"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, show_progress: ShowProgress) -> None:
    java, spark = java_command(), pyspark_jars()
    ivy = next(iter(sorted(spark.glob("ivy-*.jar"))), None) if spark else None
    if ivy is None:
        raise Misconfigured(
            "Kafka's jars are not in the cache, and PySpark, which fetches them, is not installed: "
            f"pip install 'tidegate[producers]', {_INSTEAD}"
        )
    part = Path(tempfile.mkdtemp(prefix=f"{KAFKA_VERSION}.part-", dir=folder.parent))
    try:
        _resolve(
            [java, *_PATIENCE, *_proxies(), "-cp", str(ivy), "org.apache.ivy.Main"],
            part,
            show_progress,
        )
        checked = part / "checked"
        checked.mkdir()
        for name, digest in pinned_jars().items():
            _take(part / "jars" / name, digest, checked)
        if folder.exists():
            shutil.rmtree(folder)
        checked.rename(folder)
        show_progress(f"Kafka {KAFKA_VERSION}: jars are in {folder}")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _resolve(ivy: list[str], part: Path, show_progress: ShowProgress) -> None:
    """Download the broker and its dependencies with Ivy."""
    argv = [
        *ivy,
        *(("-settings", str(settings)) if (settings := _ivy_settings(part)) else ()),
        *("-dependency", "org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
        # Five of the jars are published as bundles; without them the broker exits at once.
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-cache", str(part / "ivy")),
        *("-retrieve", str(part / "jars" / "[artifact]-[revision].[ext]")),
    ]
    show_progress(f"Kafka {KAFKA_VERSION}: fetching {len(pinned_jars())} jars (43 MB, once)")
    output = _watched(argv, show_progress)
    missing = [name for name in pinned_jars() if not (part / "jars" / name).is_file()]
    if missing:
        reasons = [line.strip() for line in output if "ERROR" in line or "SERVER" in line]
        reason = reasons[0] if reasons else (output[-1].strip() if output else "nothing")
        raise Unavailable(
            f"Kafka's jars could not be fetched ({len(missing)} are missing, first {missing[0]}; "
            f"Ivy said: {reason}); check the network or give your mirror in "
            f"~/.ivy2/ivysettings.xml ({IVY_SETTINGS} names another file), {_INSTEAD}"
        )


def _watched(argv: list[str], show_progress: ShowProgress) -> list[str]:
    output: list[str] = []
    total, fetched = len(pinned_jars()), 0
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None, "piped"
        try:
            for line in process.stdout:
                output.append(line)
                if "[SUCCESSFUL ]" in line:
                    fetched += 1
                    if fetched % 5 == 0:
                        show_progress(f"Kafka {KAFKA_VERSION}: {fetched} of {total} jars")
        finally:
            process.kill()
    return output


def _take(jar: Path, digest: str, checked: Path) -> None:
    actual = hashlib.sha256(jar.read_bytes()).hexdigest()
    if actual != digest:
        raise Misconfigured(
            f"{jar.name} has the sha256 {actual}, pinned is {digest}: the registry or mirror "
            "serves another file; nothing was kept"
        )
    jar.rename(checked / jar.name)


def _ivy_settings(part: Path) -> Path | None:
    """Return the user's Ivy settings, else settings made from their Maven mirror, else None."""
    configured = os.environ.get(IVY_SETTINGS)
    file = Path(configured) if configured else Path.home() / ".ivy2" / "ivysettings.xml"
    if configured and not file.is_file():
        raise Misconfigured(f"{IVY_SETTINGS} names {file}, which is not there")
    if file.is_file():
        return file
    mirror = maven_mirror(Path.home() / ".m2" / "settings.xml")
    if mirror is None:
        return None
    generated = part / "ivysettings.xml"
    generated.touch(mode=0o600)
    generated.write_text(as_ivy_settings(mirror), encoding="utf-8")
    return generated


def _proxies() -> list[str]:
    """Return Java options for the environment's proxies, which Java does not read itself."""
    options: list[str] = []
    for scheme in ("http", "https"):
        url = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        host = urlsplit(url) if url else None
        if host and host.hostname:
            options.append(f"-D{scheme}.proxyHost={host.hostname}")
            options.append(f"-D{scheme}.proxyPort={host.port or 3128}")
    return options


@dataclass(frozen=True)
class Mirror:
    """A mirror of the central repository, with an account if it needs one."""

    url: str
    username: str = ""
    password: str = ""


def maven_mirror(settings: Path) -> Mirror | None:
    """Return the first mirror of the central repository, or None if there is none."""
    if not settings.is_file():
        return None
    try:
        root = ET.parse(settings).getroot()
    except ET.ParseError:
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    for mirror in root.findall("mirrors/mirror"):
        mirrored = {part.strip() for part in _text(mirror, "mirrorOf").split(",")}
        if (
            mirrored & {"*", "central", "external:*"}
            and "!central" not in mirrored
            and _text(mirror, "url")
        ):
            username, password = _account(root, _text(mirror, "id"))
            return Mirror(_text(mirror, "url"), username, password)
    return None


def as_ivy_settings(mirror: Mirror) -> str:
    """Return an ivysettings.xml whose only resolver is the mirror."""
    host = urlsplit(mirror.url).hostname or ""
    # Ivy needs the realm that the server names; an empty realm matches any.
    account = (
        f"<credentials host={quoteattr(host)} realm='' username={quoteattr(mirror.username)} "
        f"passwd={quoteattr(mirror.password)}/>"
        if mirror.username
        else ""
    )
    return (
        "<ivysettings><settings defaultResolver='mirror'/>"
        f"{account}<resolvers><ibiblio name='mirror' m2compatible='true' "
        f"root={quoteattr(mirror.url)}/></resolvers></ivysettings>"
    )


def _account(root: ET.Element, server_id: str) -> tuple[str, str]:
    for server in root.findall("servers/server"):
        if _text(server, "id") == server_id:
            return _text(server, "username"), _text(server, "password")
    return "", ""


def _text(element: ET.Element, name: str) -> str:
    """Return the text of a child element, with `${env.NAME}` replaced as in Maven."""
    text = (element.findtext(name) or "").strip()
    return re.sub(r"\$\{env\.(\w+)\}", lambda match: os.environ.get(match[1], ""), text)


def main() -> int:
    """Download the jars if needed, and return the exit status. `make env` calls this."""
    try:
        ensure_jars(lambda line: _say(sys.stdout, line))
    except TidegateError as error:
        _say(sys.stderr, str(error))
        return 2
    return 0


def _say(out: TextIO, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
