"""The clients, how to start each, and why one is not available."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.driver import ROOT, Adapter
from tests.support.apache_kafka import Unavailable, fetch_jars
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE, java_problem
from tests.support.kafkajs import fetch_kafkajs

ADAPTERS = ROOT / "tests" / "interop" / "adapters"


@dataclass(frozen=True)
class Kind:
    """One client; `start` raises Unavailable."""

    name: str
    start: Callable[[], Adapter]


def _python(package: str, program: str) -> Callable[[], Adapter]:
    def start() -> Adapter:
        if importlib.util.find_spec(package) is None:
            raise Unavailable(f"{package} is missing: install the package with its dev extra.")
        return Adapter([sys.executable, "-m", f"tests.interop.adapters.{program}"], {})

    return start


def _java() -> Adapter:
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    java = java_with(fetch_jars(), "-Xmx256m", *SHORT_LIFE, "-Dlog4j2.level=OFF")
    return Adapter([*java, str(ADAPTERS / "JavaAdapter.java")], {})


def _kafkajs() -> Adapter:
    return Adapter(
        ["node", str(ADAPTERS / "kafkajs_adapter.mjs")],
        {"KAFKAJS_FOLDER": str(fetch_kafkajs()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )


FLEET = {
    kind.name: kind
    for kind in (
        Kind("java", _java),
        Kind("confluent", _python("confluent_kafka", "confluent_adapter")),
        Kind("kafka_python", _python("kafka", "kafka_python_adapter")),
        Kind("aiokafka", _python("aiokafka", "aiokafka_adapter")),
        Kind("kafkajs", _kafkajs),
    )
}
