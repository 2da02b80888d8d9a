"""`tidegate ingest` on a Spark cluster, at night: a master and a worker, as processes of their own.

Nothing is shared with the executors but the files of this installation. One of them is killed while
it writes.
"""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyspark
import pytest

from tests.integration import environments
from tests.integration.conftest import Line, free_port
from tests.integration.ingest_job import ids_of
from tests.integration.test_ingest import SPARK, IngestProcess, Source, versions
from tests.integration.waiting import until
from tidegate_local.child_processes import Child, Command
from tidegate_producers.ingest import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

ROOT = environments.ROOT
HOST = "127.0.0.1"
JAVA = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": HOST}
LIMITS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
}


class Cluster:
    """Spark's standalone master, with or without one worker of two cores."""

    def __init__(self, folder: Path, *, has_worker: bool = True) -> None:
        self._has_worker = has_worker
        self.url = f"spark://{HOST}:{free_port()}"
        self._folder = folder
        page = free_port()
        self._page = f"http://{HOST}:{page}"
        port = self.url.rpartition(":")[2]
        deploy = "org.apache.spark.deploy"
        ui = ["--webui-port", str(page)]
        self._master = self._child("master", f"{deploy}.master.Master", "--port", port, *ui)
        worker = ["--cores", "2", "--memory", "1536m", "--webui-port", "0"]
        worker += ["--work-dir", str(folder / "work")]
        self._worker = self._child("worker", f"{deploy}.worker.Worker", *worker, self.url)

    def _child(self, name: str, main: str, *arguments: str) -> Child:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        argv = [str(program), main, "--host", HOST, *arguments]
        return Child(Command(name, argv, JAVA), self._folder / f"{name}.log")

    def start(self) -> None:
        self._master.start()
        if self._has_worker:
            self._worker.start()
        until(self._answers, "the worker is registered")

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self._page}/json/") as answer:
            return b'"aliveworkers" : %d' % self._has_worker in answer.read()
        return False

    def stop(self) -> None:
        self._worker.stop()
        self._master.stop()

    def executors(self) -> list[int]:
        """Return the processes of the worker's executors."""
        found = subprocess.run(
            ["pgrep", "-g", str(self._worker.pid), "-f", "CoarseGrainedExecutorBackend"],
            capture_output=True,
            text=True,
        )
        return [int(pid) for pid in found.stdout.split()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def settings_for(cluster: Cluster) -> list[str]:
    given = {**SPARK, **LIMITS, "spark.master": cluster.url}
    return [
        part for pair in given.items() for part in ("--set", "ingest.spark.{}={}".format(*pair))
    ]


@pytest.mark.timeout(900)
def test_a_cluster_copies_each_record_once_when_executors_are_killed(
    line: Line, cluster: Cluster, tmp_path: Path
) -> None:
    line.started("committer")
    brokers = line.kafka.bootstrap_servers
    source, table = Source(brokers, f"{line.kafka.topic_prefix}orders"), line.tables / "orders"
    log = tmp_path / "job.log"
    job = IngestProcess(line, source.topic, table, log, *settings_for(cluster))
    source.add(500)
    try:
        job.start()
        job.wait_for(lambda: versions(table) >= 2)
        for _ in range(2):
            source.add(10_000)
            until(lambda: bool(cluster.executors()), "an executor works")
            for pid in cluster.executors():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.wait_for(lambda: len(ids_of(table)) >= len(source.rows))
            assert ids_of(table) == source.rows
    finally:
        job.kill()
    source.add(50)
    done = submitted(cluster, line, source.topic, str(table), "--once")
    assert done.returncode == 0, done.stderr
    assert ids_of(table) == source.rows


@pytest.mark.timeout(900)
def test_the_image_s_entrypoint_starts_a_driver_and_an_executor_as_pods_of_spark_do(
    line: Line, tmp_path: Path
) -> None:
    """Kubernetes is left out: the driver gets no executors by itself, and this test starts one."""
    line.started("committer")
    source = Source(line.kafka.bootstrap_servers, f"{line.kafka.topic_prefix}orders")
    source.add(500)
    table, port = line.tables / "orders", free_port()
    cluster = Cluster(tmp_path, has_worker=False)
    given = {
        **LIMITS,
        "spark.master": cluster.url,
        "spark.driver.port": str(port),
        "spark.driver.memory": "1g",
        "spark.jars.packages": f"org.apache.spark:{spark_session.KAFKA}:{pyspark.__version__}",
        "spark.sql.shuffle.partitions": "1",
    }
    properties = tmp_path / "spark.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    driver_of = ["driver", "--properties-file", str(properties)]
    driver_of += ["--class", "org.apache.spark.deploy.PythonRunner"]
    options = [part for pair in line.settings.items() for part in ("--set", "=".join(pair))]
    program = f"local://{ROOT / 'deploy/jobs/ingest.py'}"
    driver_of += [program, source.topic, str(table), "--once", *options]
    driver_of += ["--value-schema", "id BIGINT, text STRING"]
    driver = entrypoint(tmp_path, driver_of, SPARK_DRIVER_BIND_ADDRESS=HOST)
    executor = entrypoint(
        tmp_path,
        ["executor"],
        SPARK_JAVA_OPT_0="--add-opens=java.base/java.nio=ALL-UNNAMED",
        SPARK_JAVA_OPT_1="-Dnamed=with a space",
        SPARK_JAVA_OPT_2="--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        SPARK_EXECUTOR_MEMORY="512m",
        SPARK_DRIVER_URL=f"spark://CoarseGrainedScheduler@{HOST}:{port}",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP=HOST,
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="executor-1",
    )
    try:
        cluster.start()
        driver.start()
        until(partial(is_open, port), "the driver listens", 120.0)
        executor.start()
        assert driver.wait(300.0) == 0, driver.tail(60) + executor.tail(60)
        assert ids_of(table) == source.rows
    finally:
        driver.stop()
        executor.stop()
        cluster.stop()


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), 1.0):
        return True
    return False


def entrypoint(folder: Path, arguments: list[str], **environ: str) -> Child:
    """Return the image's process with an environment as Spark gives it to a pod."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST, **environ}
    # An executor puts the job's jars where it runs.
    argv = ["env", "-C", str(folder), "sh", str(ROOT / "deploy/jobs/entrypoint.sh"), *arguments]
    return Child(Command(arguments[0], argv, given), folder / f"{arguments[0]}.log")


def submitted(cluster: Cluster, line: Line, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `tidegate ingest` by spark-submit, as the manual says."""
    package = f"org.apache.spark:{spark_session.KAFKA}:{pyspark.__version__}"
    options = ["--master", cluster.url, "--packages", package]
    options += [part for pair in LIMITS.items() for part in ("--conf", "=".join(pair))]
    given = [part for pair in line.settings.items() for part in ("--set", "=".join(pair))]
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    main = Path(spark_session.__file__).with_name("__main__.py")
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    whole = [str(program), *options, str(main), *argv, *given]
    return subprocess.run(whole, env=environ, capture_output=True, text=True, timeout=300)
