"""What processes send to their exporter, and what it answers: one JSON document for each connection."""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_eos.metrics import Changes, Gauge, Labels
from spark_eos.options.metrics import MetricsTargets

_CHUNK_BYTES: Final = 1 << 16


def encode_changes(targets: Sequence[MetricsTargets], changes: Mapping[str, Changes]) -> bytes:
    """Encode the changes of each prefix, and where all metrics go."""
    return json.dumps(
        {
            "targets": targets,
            "changes": {
                prefix: {
                    "counters": list(each.counters.items()),
                    "gauges": [
                        (subject, {name: list(gauge.items()) for name, gauge in gauges.items()})
                        for subject, gauges in each.gauges.items()
                    ],
                    "reports": each.reports,
                }
                for prefix, each in changes.items()
                if each
            },
        }
    ).encode()


def decode_changes(encoded: bytes) -> tuple[list[MetricsTargets], dict[str, Changes]]:
    """Decode what `encode_changes` encodes."""
    message = json.loads(encoded)
    return [MetricsTargets(*each) for each in message["targets"]], {
        prefix: Changes(
            {_labels(subject): counters for subject, counters in each["counters"]},
            {
                _labels(subject): {name: _gauge(values) for name, values in gauges.items()}
                for subject, gauges in each["gauges"]
            },
            each["reports"],
        )
        for prefix, each in message["changes"].items()
    }


def receive(connection: socket.socket) -> bytes:
    """Read until the other side has sent everything."""
    chunks: list[bytes] = []
    while chunk := connection.recv(_CHUNK_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


def _labels(pairs: Sequence[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in pairs)


def _gauge(values: Sequence[Any]) -> Gauge:
    return {_labels(labels): value for labels, value in values}
