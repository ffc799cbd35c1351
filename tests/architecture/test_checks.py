"""The architecture checks find each violation, and accept valid code."""

import pytest

from tests.support.architecture import (
    TOPS,
    Module,
    check_cycles,
    check_docstrings,
    check_layers,
    check_names,
    check_outside,
    check_sizes,
)
from tests.support.layers import ALLOWED, OUTSIDE


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
    ("spark_eos.__init__", "from spark_eos.client.kafka_client import KafkaClient"),
    ("broker_core.unlisted.module", "import struct"),
    ("pyspark_eos_kafka", "from spark_eos.sink import naming"),
]


@pytest.mark.parametrize(("name", "source"), FORBIDDEN_IMPORTS)
def test_forbidden_import_is_detected(name: str, source: str):
    assert len(check_layers(_fabricated(name, source), ALLOWED, TOPS)) == 1


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
def test_allowed_import_is_accepted(name: str, source: str):
    assert check_layers(_fabricated(name, source), ALLOWED, TOPS) == []


FORBIDDEN_USES = [
    ("broker_core.log.segment", "import time"),
    ("broker_core.log.segment", "from time import monotonic"),
    ("broker_core.coordinator.journal", "from datetime import datetime"),
    ("broker_core.broker.connection", "import asyncio"),
    ("broker_core.broker.connection", "def late():\n    import threading"),
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
    ("spark_eos.source.planner", "import time"),
    ("spark_eos.admin.timeline", "import time"),
    ("spark_eos.sink.writer", "text = open('x').read()"),
]


@pytest.mark.parametrize(("name", "source"), FORBIDDEN_USES)
def test_forbidden_external_use_is_detected(name: str, source: str):
    assert check_outside(_fabricated(name, source), OUTSIDE, TOPS) != []


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
def test_allowed_external_use_is_accepted(name: str, source: str):
    assert check_outside(_fabricated(name, source), OUTSIDE, TOPS) == []


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
def test_missing_responsibility_is_detected(name: str, source: str):
    assert check_docstrings(_fabricated(name, source)) != []


def test_docstring_is_accepted():
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
        # The files do not import each other, but their packages do.
        ({"a.b.x": "import a.c.x", "a.c.x": "", "a.c.y": "import a.b.y", "a.b.y": ""}, "a.b, a.c"),
        ({"a.x": "import a.b.x", "a.b.x": "", "a.b.y": "import a.x"}, "a.b, a.x"),
    ],
)
def test_import_cycle_is_detected(sources: dict[str, str], cycle: str):
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


def test_long_file_and_long_function_are_detected():
    file = check_sizes(_fabricated("broker_core.log.segment", "x = 1\n" * 451))
    function = check_sizes(_fabricated("a", "class A:\n    async def grown(self):\n" + "        x = 1\n" * 70))
    assert file == ["broker_core.log.segment: 451 lines, more than 450"]
    assert function == ["a:2: grown has 71 lines, more than 70"]
    assert check_sizes(_fabricated("a", "x = 1\n" * 330 + "def grown():\n" + "    x = 1\n" * 69)) == []


@pytest.mark.parametrize("name", ["broker_core.log.utils", "spark_eos.helpers.arrow", "broker_core._misc"])
def test_meaningless_name_is_detected(name: str):
    assert check_names(_fabricated(name, "")) != []
    assert check_names(_fabricated("broker_core.log.utility_rates", "")) == []
