"""Fuzz targets for a broker's connections: framing alone, and a whole connection with all handlers."""

import logging

from broker_core.broker.apis import SERVED
from broker_core.broker.connection import Connection
from broker_core.types import Frame
from broker_core.wire.framing import FrameReader, decode_request
from tests.support.broker_core.full_requests import TOPIC
from tests.support.direct import direct_cluster

_MAX_FRAME_BYTES = 1 << 20
_SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
# A cluster slows down with the number of inputs, and failures after many inputs are hard to reproduce.
_INPUTS_OF_A_CLUSTER = 200


class Unhandled(Exception):
    """A handler raised an undeclared exception."""


class _Complaints(logging.Handler):
    """A log handler that keeps the broker's records of its own failures."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with an exception."""
        if record.exc_info:
            self.found.append(self.format(record))


_complaints = _Complaints()
_log = logging.getLogger("broker_core")
_log.addHandler(_complaints)


class _Void:
    """A transport that discards the broker's responses."""

    def send(self, frame: Frame) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


_cluster = direct_cluster(settings=_SETTINGS)
_fed = 0


def feed_frames(data: bytes) -> None:
    """Split the input into frames and decode them."""
    for frame in FrameReader(_MAX_FRAME_BYTES).feed(data):
        decode_request(frame, SERVED)


def feed_connection(data: bytes) -> None:
    """Feed the input to a connection of a cluster with a topic; no request may make a handler fail."""
    global _cluster, _fed
    if _fed % _INPUTS_OF_A_CLUSTER == 0:
        _cluster = direct_cluster(settings=_SETTINGS)
    if TOPIC not in _cluster.metadata.topics:
        _cluster.controller.create_topic(TOPIC, 2)
    _fed += 1
    _complaints.found.clear()
    connection = Connection(_cluster.brokers[1], _Void(), "fuzz")
    now_ms = _cluster.now_ms + 10
    connection.receive(data, now_ms)
    _cluster.settle(now_ms)
    connection.lost()
    _cluster.settle(now_ms)
    if _complaints.found:
        raise Unhandled(_complaints.found[0])
