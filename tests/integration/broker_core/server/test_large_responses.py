"""Responses of many parts and of more bytes than a socket takes at once."""

import os
import socket
import ssl
from contextlib import closing

import pytest
import trustme

from broker_core import EmbeddedBroker
from broker_core.records.batch import NewRecord, build_batch
from broker_core.server.connection_protocol import write_at_once
from broker_core.types import TopicPartition
from tests.support.broker_core.requests import fetch_request
from tests.support.raw_client import RawClient
from tests.support.tls_client import trusting

PARTITIONS = 600
LARGE = 4 * 2**20


def part_sizes():
    return [LARGE if index % 200 == 0 else 5000 + index for index in range(PARTITIONS)]


def fill(kafka):
    """Append a batch to each partition and return them, as they are in the log."""

    def write(cluster):
        found = []
        for index, size_bytes in enumerate(part_sizes()):
            log = cluster.logs.get(TopicPartition("t", index), cluster.now_ms)
            batch = bytearray(build_batch([NewRecord(None, os.urandom(size_bytes), (), cluster.now_ms)]))
            log.append_as_leader(batch, now_ms=cluster.now_ms, leader_epoch=0)
            found.append(bytes(batch))
        return found

    return kafka._call(write)


def fetch_all():
    partitions = [{"partition": index, "partition_max_bytes": 2**30} for index in range(PARTITIONS)]
    return fetch_request("t", *partitions, max_bytes=2**30)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("tls", [False, True])
def test_a_response_of_many_large_parts_arrives_whole(tmp_path, on_disk, tls):
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    settings = {"message.max.bytes": str(2 * LARGE)}
    with EmbeddedBroker(
        data_dir=tmp_path if on_disk else None,
        config=settings,
        topics={"t": PARTITIONS},
        listeners={"A": "SSL" if tls else "PLAINTEXT"},
        tls=server_side if tls else None,
    ) as kafka:
        batches = fill(kafka)
        with RawClient(kafka.bootstrap_servers) as client:
            if tls:
                client._socket = trusting(authority).wrap_socket(client._socket, server_hostname="127.0.0.1")
            for _ in range(2):
                (topic,) = client.send(fetch_all(), 12).responses
                assert [partition.error_code for partition in topic.partitions] == [0] * PARTITIONS
                assert all(
                    bytes(partition.records) == batch
                    for partition, batch in zip(topic.partitions, batches, strict=True)
                )


def test_parts_that_the_socket_does_not_take_are_returned():
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.setblocking(False)
        frame = [os.urandom(1 + index % 7) for index in range(3000)] + [os.urandom(2**22), b"end"]
        rest, seen = frame, b""
        while rest:
            left = write_at_once(ours.fileno(), rest)
            if len(left) == len(rest) and sum(map(len, left)) == sum(map(len, rest)):
                seen += theirs.recv(2**20)
            rest = left
        ours.shutdown(socket.SHUT_WR)
        while part := theirs.recv(2**20):
            seen += part
        assert seen == b"".join(frame)


def test_all_parts_are_returned_when_the_client_is_gone():
    ours, theirs = socket.socketpair()
    theirs.close()
    with closing(ours):
        frame = (b"a", b"b")
        assert write_at_once(ours.fileno(), frame) == frame
