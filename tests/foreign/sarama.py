"""Sarama's functional tests, which reach their broker through Toxiproxy."""

import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.foreign.brokers import HOST, Place, running
from tests.foreign.fetching import go_module, go_program
from tests.foreign.outcomes import Outcomes
from tests.foreign.programs import go_tests
from tests.support.apache_kafka import free_ports, stop_process
from tests.support.child_process import start_child
from tests.support.waiting import wait_until

MODULE: Final = "github.com/IBM/sarama"
TOXIPROXY: Final = ("github.com/Shopify/toxiproxy/v2/cmd/server", "v2.12.0")
# The suite expects five brokers behind this port and the next ones. One broker serves all of them here.
FIRST_PORT: Final = 29091
PROXIES: Final = 5
REPLICATION: Final = ("ReplicationFactor: 3", "ReplicationFactor: 1")
REQUEST_S: Final = 10


def run_sarama(version: str, kind: str, log: Path, only: str | None) -> Outcomes:
    """Run the functional tests on one broker of a kind; they create topics with one replica in place of three."""
    source = go_module(MODULE, version)
    program = go_program(*TOXIPROXY)
    with tempfile.TemporaryDirectory(prefix="sarama-") as name:
        folder = Path(name) / "sarama"
        shutil.copytree(source, folder)
        for path in folder.glob("functional_*test.go"):
            text = path.read_text(encoding="utf-8")
            aligned = text.replace("ReplicationFactor:  3", "ReplicationFactor: 3")
            path.write_text(aligned.replace(*REPLICATION), encoding="utf-8")
        (port,) = free_ports(1)
        place = Place(port=port, advertised=FIRST_PORT, settings={"auto.create.topics.enable": "false"})
        with running(kind, place) as address, _toxiproxy(program, address) as proxy:
            environment = {"TOXIPROXY_ADDR": f"http://{proxy}", "KAFKA_VERSION": "4.3.1"}
            return go_tests(folder, MODULE, ["."], environment, log, only=only or "^TestFunc", tags="functional")


@contextmanager
def _toxiproxy(program: Path, upstream: str) -> Iterator[str]:
    """Run Toxiproxy with the proxies that the suite looks for, and return the address of its API."""
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    process = start_child(
        [str(program), "-host", HOST, "-port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def answers() -> bool:
            assert process.poll() is None, "Toxiproxy ended"
            try:
                urllib.request.urlopen(f"http://{address}/version", timeout=REQUEST_S).close()
            except OSError:
                return False
            return True

        wait_until(answers, "Toxiproxy answers")
        proxies = [
            {"name": f"kafka{index + 1}", "listen": f"{HOST}:{FIRST_PORT + index}", "upstream": upstream}
            for index in range(PROXIES)
        ]
        request = urllib.request.Request(
            f"http://{address}/populate", json.dumps(proxies).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=REQUEST_S).close()
        yield address
    finally:
        stop_process(process)
