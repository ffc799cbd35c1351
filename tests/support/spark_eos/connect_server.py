"""A server of Spark Connect for tests, with Python workers that see this repository."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_eos.failpoints import ENVIRONMENT_NAME
from tests.support.spark_eos.spark_session import LEAN, MASTER, lean_jvm, worker_environment
from tests.support.spark_home import lean_spark_home
from tests.support.waiting import wait_until

DEADLINE_S = 240
STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")


@pytest.fixture(scope="module")
def remote(failpoints_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a server of Spark Connect at a free port, and return its address."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": lean_jvm(),
        "spark.local.dir": str(folder),
        "spark.log.level": "INFO",
        "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        **LEAN,
    }
    home = lean_spark_home()
    command = [f"{home}/bin/spark-submit", "--master", MASTER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = folder / "log"
    with log.open("w") as output:
        environment = os.environ | worker_environment() | {ENVIRONMENT_NAME: f"@{failpoints_file}"}
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
        try:
            address = wait_until(
                lambda: STARTED.search(log.read_text()) or server.poll() is not None,
                "the server starts",
                deadline_s=DEADLINE_S,
            )
            assert isinstance(address, re.Match), log.read_text()[-3000:]
            yield f"sc://127.0.0.1:{address[1]}"
        finally:
            server.terminate()
            server.wait(30)
