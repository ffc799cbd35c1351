"""Hold the code to the house's rules: floors, windows, labels, sizes, names."""

from pathlib import Path

import pytest

from tests.support.architecture import (
    Module,
    check_cycles,
    check_docstrings,
    check_layers,
    check_names,
    check_outside,
    check_sizes,
    read_modules,
)

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker_core", "spark_eos")
TOPS = (*PACKAGES, "pyspark_eos_kafka")


def _rooms(package: str, *names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names)


_CORE_WORDS = _rooms("broker_core", "errors", "types", "ports", "config")
_CORE_BYTES = _rooms("broker_core", "wire", "records")
_CORE_RULES = _rooms("broker_core", "log", "coordinator", "security")
_CORE_WORLDS = _rooms("broker_core", "server", "simulation")
_BELOW_WORLDS = _CORE_WORDS | _CORE_BYTES | _CORE_RULES | {"broker_core.broker"}
_RECORDS = frozenset({"broker_core.records"})

_EOS_WORDS = _rooms(
    "spark_eos",
    "errors",
    "failpoints",
    "metrics",
    "options",
    "runtime",
    "worker_memory",
)
_EOS_TOOLS = _rooms("spark_eos", "codec", "client")
# All that spark_eos may know of the broker core: its words, the one home of the batch format, and for its client that
# of the messages' layout.
_SHARED_WORDS = _rooms("broker_core", "errors", "types")
_SHARED = _SHARED_WORDS | _RECORDS

# Each floor: its rooms, and for each the rooms it may import. A floor imports lower floors only, so no cycle can be.
FLOORS: tuple[dict[str, frozenset[str]], ...] = (
    {
        "broker_core.errors": frozenset(),
        "broker_core.decision_table": frozenset(),
        "spark_eos.errors": frozenset(),
        "spark_eos.worker_memory": frozenset(),
    },
    {
        "broker_core.types": _rooms("broker_core", "errors"),
        "broker_core.ports": _rooms("broker_core", "errors"),
        "broker_core.config": _rooms("broker_core", "errors"),
    },
    {
        "broker_core.wire": _CORE_WORDS,
        "broker_core.records": _CORE_WORDS,
        "spark_eos.failpoints": _rooms("spark_eos", "errors"),
        "spark_eos.metrics": _rooms("spark_eos", "errors"),
        "spark_eos.options": frozenset(),
        "spark_eos.options.client_settings": _rooms("spark_eos", "errors"),
        "spark_eos.options.positions": _rooms("spark_eos", "errors") | _SHARED_WORDS,
    },
    {
        "broker_core.log": _CORE_WORDS | _RECORDS | {"broker_core.decision_table"},
        "broker_core.coordinator": _CORE_WORDS | _RECORDS | {"broker_core.decision_table"},
        "broker_core.security": _CORE_WORDS,
        "spark_eos.options.client": _rooms("spark_eos", "errors", "options.client_settings"),
    },
    {
        "broker_core.broker": _CORE_WORDS | _CORE_BYTES | _CORE_RULES,
        "spark_eos.runtime": _rooms("spark_eos", "errors", "options.client"),
        "spark_eos.options.sink": _rooms("spark_eos", "errors", "options.client", "metrics") | _SHARED,
        "spark_eos.options.operator_commands": _rooms("spark_eos", "options.client") | _SHARED_WORDS,
        "spark_eos.options.source": _rooms("spark_eos", "errors", "options.client", "metrics", "options.positions")
        | _SHARED_WORDS,
    },
    {
        "broker_core.server": _BELOW_WORLDS,
        "broker_core.simulation": _BELOW_WORLDS,
        "spark_eos.codec": _EOS_WORDS | _SHARED,
    },
    {
        # The producer seals and splits the codec's batches; the codec knows nothing of connections.
        # Both sides read the same messages, so their layout is measured in one place.
        "spark_eos.client": _EOS_WORDS | _SHARED | _rooms("spark_eos", "codec") | _rooms("broker_core", "wire"),
    },
    {
        "broker_core.embedded": _BELOW_WORLDS | _CORE_WORLDS,
        "spark_eos.sink": _EOS_WORDS | _EOS_TOOLS | _SHARED,
        "spark_eos.source": _EOS_WORDS | _EOS_TOOLS | _SHARED,
    },
    {
        "broker_core.__main__": _BELOW_WORLDS | _CORE_WORLDS,
        "broker_core.pytest_plugin": _CORE_WORDS | _rooms("broker_core", "embedded"),
        # An operator's command ends transactions by the same rules as the sink.
        "spark_eos.admin": _EOS_WORDS | _EOS_TOOLS | _rooms("spark_eos", "sink") | _SHARED,
        "spark_eos.datasource": _EOS_WORDS | _EOS_TOOLS | _rooms("spark_eos", "sink", "source") | _SHARED,
    },
    {
        # The public names, imported when they are first used.
        "broker_core": _BELOW_WORLDS | _CORE_WORLDS | _rooms("broker_core", "embedded"),
        "pyspark_eos_kafka": _rooms("spark_eos", "datasource"),
    },
    {
        "spark_eos": _rooms("spark_eos", "datasource", "errors") | {"broker_core"},
    },
)
ROOMS = {room: allowed for floor in FLOORS for room, allowed in floor.items()}

_NOBODY: frozenset[str] = frozenset()
_CORE_REAL = _rooms("broker_core", "server", "embedded", "pytest_plugin", "__main__")
_CORE_CHANCE = _CORE_REAL | {"broker_core.simulation"}
# What a client and the sink are given instead of looking for themselves.
_RUNTIME = _rooms("spark_eos", "runtime")
_EOS_REAL = _rooms("spark_eos", "client", "sink", "source", "admin", "runtime")
# Numbers are served from a thread, once in each process.
_EOS_METRICS = _rooms("spark_eos", "metrics")
# A failpoint stops or kills its process, that is its whole job.
_FAILPOINTS = _rooms("spark_eos", "failpoints")
_EOS_COLUMNS = _rooms("spark_eos", "codec", "sink", "source", "datasource")

# What lies outside, and who has a window onto it. The longest name counts; a third-party name that is not listed is
# no dependency, and a standard module that is not listed touches nothing outside.
WINDOWS: dict[str, frozenset[str]] = {
    # Kafka's messages, and the codecs and checksums of its batches.
    "kafka": _rooms("spark_eos", "client"),
    "kafka.protocol": _rooms("broker_core", "wire") | _rooms("spark_eos", "client"),
    "cramjam": _rooms("broker_core", "records.compression"),
    "crc32c": _rooms("broker_core", "records", "log") | _rooms("spark_eos", "codec", "sink"),
    "scramp": _rooms("broker_core", "security"),
    # What it is served with, to whoever asks for it; nothing else may need it.
    "prometheus_client": _rooms("broker_core", "server.metrics_endpoint", "server.metrics_families") | _EOS_METRICS,
    # The names in certificates.
    "asn1crypto": _rooms("broker_core", "security"),
    # The regular expressions of Kafka's requests are RE2's.
    "re2": _rooms("broker_core", "coordinator.patterns"),
    # Spark and columns.
    "pyspark": _rooms("spark_eos", "datasource", "sink", "source"),
    "pyarrow": _EOS_COLUMNS,
    "numpy": _EOS_COLUMNS,
    # Test tools.
    "pytest": _rooms("broker_core", "pytest_plugin"),
    "confluent_kafka": _rooms("broker_core", "pytest_plugin"),
    # Sockets.
    **dict.fromkeys(
        ("socket", "ssl", "select", "selectors", "socketserver", "http", "urllib.request"),
        _CORE_REAL | _rooms("spark_eos", "client"),
    ),
    # The options of the sockets that Spark has opened.
    "socket": _CORE_REAL | _rooms("spark_eos", "client", "sink.spark_sockets"),
    # Other threads and processes.
    **dict.fromkeys(
        ("asyncio", "threading", "_thread", "concurrent", "multiprocessing", "queue", "subprocess", "sched"),
        _CORE_REAL | _EOS_REAL,
    ),
    "threading.Lock": _CORE_REAL | _EOS_REAL | _EOS_METRICS,
    "signal": _CORE_REAL | _FAILPOINTS,
    # Clocks.
    "time": _CORE_REAL | _RUNTIME | _FAILPOINTS | _rooms("spark_eos", "source", "admin"),
    # To write a time down takes no look at a clock.
    **dict.fromkeys(("time.gmtime", "time.strftime"), _CORE_REAL | _rooms("spark_eos", "admin", "sink.decision")),
    "datetime": _CORE_REAL | _EOS_REAL,
    # Chance. uuid.UUID is a plain value; only the functions that make one draw.
    "random": _CORE_CHANCE | _RUNTIME,
    "random.Random": _CORE_CHANCE | _RUNTIME | _rooms("spark_eos", "sink.task.partitioning"),
    "secrets": _CORE_REAL | _RUNTIME | _rooms("spark_eos", "admin", "sink.incarnation"),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "uuid.getnode"), _CORE_REAL | _EOS_REAL),
    # Files and the process's surroundings.
    "os": _CORE_REAL
    | _RUNTIME
    | _FAILPOINTS
    | _rooms("spark_eos", "client.tls", "sink", "admin")
    | _rooms("spark_eos", "worker_memory"),
    "os.getpid": _CORE_REAL
    | _RUNTIME
    | _FAILPOINTS
    | _EOS_METRICS
    | _rooms("spark_eos", "sink.commit_report", "sink.incarnation"),
    **dict.fromkeys(
        ("builtins.open", "io.open", "io.FileIO", "pathlib", "shutil", "glob", "mmap", "fcntl", "fileinput", "sqlite3"),
        _CORE_REAL | _FAILPOINTS,
    ),
    # How an operator reaches a secured cluster is in a file, as for Kafka's own tools; so is a token.
    "pathlib.Path": _CORE_REAL | _FAILPOINTS | _rooms("spark_eos", "admin", "client.credentials", "sink.incarnation"),
    # Pure paths are text.
    **dict.fromkeys(("pathlib.PurePath", "pathlib.PurePosixPath"), frozenset(PACKAGES)),
    # Keys and certificates given as text have to be in a file before Python's TLS takes them.
    "tempfile": _CORE_REAL | _rooms("spark_eos", "client"),
    # Ways around this very table.
    **dict.fromkeys(("importlib", "runpy", "builtins.__import__", "builtins.eval", "builtins.exec"), _NOBODY),
    "importlib.metadata": _CORE_REAL | _EOS_REAL,
    # The page that a timeline fills in.
    "importlib.resources": _rooms("spark_eos", "admin.timeline_page"),
}


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return list(read_modules(ROOT, *TOPS))


def test_the_packages_are_read(modules: list[Module]):
    names = {module.name for module in modules}
    assert {"broker_core.errors", "broker_core.log", "spark_eos.errors"} <= names


def test_rooms_import_only_what_the_table_lets_them(modules: list[Module]):
    assert check_layers(modules, ROOMS, TOPS) == []


def test_the_outside_is_reached_through_its_windows(modules: list[Module]):
    # The public packages import a name when it is first used.
    lazy = {**WINDOWS, "importlib.import_module": frozenset(PACKAGES)}
    assert check_outside([each for each in modules if each.name not in PACKAGES], WINDOWS, TOPS) == []
    assert check_outside([each for each in modules if each.name in PACKAGES], lazy, TOPS) == []


def test_neither_files_nor_packages_import_each_other(modules: list[Module]):
    # Until the last of these cycles is gone.
    known = ("broker_core.broker.", "broker_core.simulation.", "spark_eos.client.")
    assert [cycle for cycle in check_cycles(modules) if not any(package in cycle for package in known)] == []


def test_every_module_has_a_docstring_and_every_package_a_responsibility(modules: list[Module]):
    assert check_docstrings(modules) == []


def test_every_package_folder_has_an_init():
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_files_and_functions_are_small():
    assert check_sizes(read_modules(ROOT, *TOPS, "examples")) == []


def test_names_say_something(modules: list[Module]):
    assert check_names(modules) == []


def test_the_table_imports_downwards_only():
    floor_of = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    upwards = [
        f"{room} -> {other}"
        for room, allowed in ROOMS.items()
        for other in allowed
        if floor_of[other] >= floor_of[room]
    ]
    assert upwards == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("broker_core.log", "broker_core.coordinator"),
        ("broker_core.server", "broker_core.simulation"),
        ("spark_eos.sink", "spark_eos.source"),
    ],
)
def test_the_table_keeps_neighbours_apart(one: str, other: str):
    assert other not in ROOMS[one]
    assert one not in ROOMS[other]


def test_the_table_keeps_the_packages_apart():
    upwards = {
        room: allowed
        for room, allowed in ROOMS.items()
        if room.startswith("broker_core") and any(not name.startswith("broker_core.") for name in allowed)
    }
    shared = {
        name
        for room, allowed in ROOMS.items()
        if room.startswith("spark_eos.")
        for name in allowed
        if name.startswith("broker_core")
    }
    assert upwards == {}
    assert shared == {"broker_core.errors", "broker_core.types", "broker_core.records", "broker_core.wire"}


def _fabricated(name: str, source: str) -> list[Module]:
    return [Module(name.removesuffix(".__init__"), name.endswith(".__init__"), source)]


FORBIDDEN_IMPORTS = [
    ("broker_core.log.segment", "from broker_core.coordinator.journal import Journal"),
    ("broker_core.coordinator.journal", "import broker_core.log.segment"),
    ("broker_core.coordinator.journal", "from .. import log"),
    ("broker_core.coordinator.__init__", "from ..log import PartitionLog"),
    ("broker_core.coordinator.journal", "from ..log.segment import Segment"),
    ("broker_core.errors", "from broker_core.types import TopicPartition"),
    ("broker_core.records.batch", "def late():\n    from broker_core.log import PartitionLog"),
    ("broker_core.records.batch", "from broker_core import wire"),
    ("broker_core.records.batch", "from broker_core import *"),
    ("broker_core.log.segment", "from broker_core.wire import framing"),
    ("broker_core.broker.topics", "from broker_core.server.disk import Disk"),
    ("broker_core.server.disk", "from broker_core.simulation.disk import Disk"),
    ("broker_core.broker.topics", "import spark_eos.codec"),
    ("spark_eos.sink.writer", "from spark_eos.source.plan import Plan"),
    ("spark_eos.source.plan", "from spark_eos.sink.writer import Writer"),
    ("spark_eos.sink.writer", "from broker_core.log import PartitionLog"),
    ("spark_eos.codec.encode", "from broker_core.config import TopicConfig"),
    ("spark_eos.codec.encode", "from spark_eos.client.kafka_client import KafkaClient"),
    ("spark_eos.__init__", "from spark_eos.sink.spark_writers import StreamWriter"),
    ("broker_core.cellar.wine", "import struct"),
    ("pyspark_eos_kafka", "from spark_eos.sink import naming"),
]


@pytest.mark.parametrize(("name", "source"), FORBIDDEN_IMPORTS)
def test_a_forbidden_import_is_found(name: str, source: str):
    assert len(check_layers(_fabricated(name, source), ROOMS, TOPS)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("broker_core.log.segment", "from broker_core.log.indexes import OffsetIndex\nfrom . import recovery"),
        ("broker_core.log.__init__", "from .partition_log import PartitionLog"),
        ("broker_core.log.segment", "from broker_core import errors\nfrom ..records.header import BatchHeader"),
        ("broker_core.embedded", "from broker_core.simulation.disk import MemoryDisk"),
        ("spark_eos.codec.encode", "from broker_core.records import Compression"),
        ("pyspark_eos_kafka", "from spark_eos.datasource import EosKafkaDataSource"),
    ],
)
def test_an_allowed_import_is_let_through(name: str, source: str):
    assert check_layers(_fabricated(name, source), ROOMS, TOPS) == []


CLOSED_WINDOWS = [
    ("broker_core.log.segment", "import time"),
    ("broker_core.log.segment", "from time import monotonic"),
    ("broker_core.coordinator.journal", "from datetime import datetime"),
    ("broker_core.broker.dispatch", "import asyncio"),
    ("broker_core.broker.dispatch", "def late():\n    import threading"),
    ("broker_core.wire.framing", "import socket"),
    ("broker_core.coordinator.journal", "from os import urandom"),
    ("broker_core.coordinator.journal", "import random"),
    ("broker_core.broker.topics", "import uuid\nname = uuid.uuid4()"),
    ("broker_core.broker.topics", "import uuid as ids\nname = ids.uuid4()"),
    ("broker_core.broker.topics", "from uuid import uuid4"),
    ("broker_core.log.segment", "with open('x') as file: pass"),
    ("broker_core.log.segment", "opener = open"),
    ("broker_core.log.segment", "import io\nio.open('x')"),
    ("broker_core.log.segment", "from pathlib import Path"),
    ("broker_core.log.segment", "from broker_core.errors import X\nimport os.path"),
    ("broker_core.simulation.clock", "import time"),
    ("broker_core.simulation.disk", "import secrets"),
    ("broker_core.log.segment", "__import__('time')"),
    ("broker_core.log.segment", "import importlib"),
    ("broker_core.broker.topics", "from kafka.protocol.metadata import MetadataRequest"),
    ("broker_core.wire.messages", "from kafka import KafkaProducer"),
    ("broker_core.wire.messages", "from kafka.record import MemoryRecords"),
    ("broker_core.records.batch", "import cramjam"),
    ("broker_core.log.segment", "import numpy"),
    ("broker_core.records.batch", "import pyarrow as pa"),
    ("broker_core.server.disk", "import pyspark"),
    ("broker_core.server.disk", "import requests"),
    ("spark_eos.codec.encode", "import cramjam"),
    ("spark_eos.codec.encode", "from pyspark.sql import Row"),
    ("spark_eos.client.kafka_client", "import pyspark"),
    ("spark_eos.sink.writer", "import confluent_kafka"),
    ("spark_eos.codec.encode", "import socket"),
    ("spark_eos.options.sink", "import os"),
    ("spark_eos.sink.writer", "text = open('x').read()"),
]


@pytest.mark.parametrize(("name", "source"), CLOSED_WINDOWS)
def test_a_closed_window_is_found(name: str, source: str):
    assert check_outside(_fabricated(name, source), WINDOWS, TOPS) != []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("broker_core.server.clock", "import time, os, socket\nnow = time.time()"),
        ("broker_core.simulation.chance", "import random"),
        ("broker_core.wire.messages", "from kafka.protocol.metadata import MetadataRequest"),
        ("broker_core.records.compression", "import cramjam"),
        ("broker_core.types", "from uuid import UUID\nimport uuid\nNONE = uuid.UUID(int=0)"),
        ("broker_core.log.segment", "import struct\nfile = storage.open('x')\ntime = 3\ntime.real"),
        ("spark_eos.codec.encode", "import pyarrow as pa\nimport numpy as np"),
        ("spark_eos.client.kafka_client", "from kafka.net.manager import KafkaConnectionManager"),
    ],
)
def test_an_open_window_is_let_through(name: str, source: str):
    assert check_outside(_fabricated(name, source), WINDOWS, TOPS) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("broker_core.log.segment", "x = 1"),
        ("broker_core.log.__init__", ""),
        ("broker_core.log.__init__", '"""Logs of partitions. And more."""'),
        ("broker_core.log.__init__", '"""Logs of partitions.\nMore about them."""'),
        ("broker_core.log.__init__", '"""logs of partitions"""'),
    ],
)
def test_a_missing_responsibility_is_found(name: str, source: str):
    assert check_docstrings(_fabricated(name, source)) != []


def test_a_docstring_is_accepted():
    assert (
        check_docstrings(_fabricated("broker_core.log.__init__", '"""Logs of\npartitions.\n\nMore. And more."""')) == []
    )
    assert check_docstrings(_fabricated("broker_core.log.segment", '"""A segment. More."""')) == []


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"a.x": "import a.y", "a.y": "from a import x"}, "a.x, a.y"),
        ({"a.x": "def late():\n    from . import y", "a.y": "from a.x import X"}, "a.x, a.y"),
        ({"a.x": "if TYPE_CHECKING:\n    from a.y import Y", "a.y": "from a.x import X"}, "a.x, a.y"),
        ({"a.x": "from a.y import Y", "a.y": "from a.z import Z", "a.z": "from a.x import X"}, "a.x, a.y, a.z"),
        ({"a.__init__": "from a.x import X", "a.x": "from a import X"}, "a.__init__, a.x"),
        # No two of these files import each other, but their packages do.
        ({"a.b.x": "import a.c.x", "a.c.x": "", "a.c.y": "import a.b.y", "a.b.y": ""}, "a.b, a.c"),
        ({"a.x": "import a.b.x", "a.b.x": "", "a.b.y": "import a.x"}, "a.b, a.x"),
    ],
)
def test_a_cycle_is_found(sources: dict[str, str], cycle: str):
    modules = [module for name, source in sources.items() for module in _fabricated(name, source)]
    assert check_cycles(modules) == [f"import each other: {cycle}"]


def test_imports_without_a_cycle_are_accepted():
    sources = {
        "a.x": "import a.b.y",
        "a.b.y": "import a.z, a.b.z",
        "a.b.z": "import struct",
        "a.z": "",
        "a.__init__": "import a.x",
    }
    modules = [module for name, source in sources.items() for module in _fabricated(name, source)]
    assert check_cycles(modules) == []


def test_a_long_file_and_a_long_function_are_found():
    file = check_sizes(_fabricated("broker_core.log.segment", "x = 1\n" * 451))
    function = check_sizes(_fabricated("a", "class A:\n    async def grown(self):\n" + "        x = 1\n" * 70))
    assert file == ["broker_core.log.segment: 451 lines, more than 450"]
    assert function == ["a:2: grown has 71 lines, more than 70"]
    assert check_sizes(_fabricated("a", "x = 1\n" * 330 + "def grown():\n" + "    x = 1\n" * 69)) == []


@pytest.mark.parametrize("name", ["broker_core.log.utils", "spark_eos.helpers.arrow", "broker_core._misc"])
def test_a_name_that_says_nothing_is_found(name: str):
    assert check_names(_fabricated(name, "")) != []
    assert check_names(_fabricated("broker_core.log.utility_rates", "")) == []
