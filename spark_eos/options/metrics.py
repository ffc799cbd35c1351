"""The options that say where the metrics of a query go: a port, a file, or an OpenTelemetry collector."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from spark_eos.errors import OptionError

PORT_OPTION: Final = "metricsPort"
HOST_OPTION: Final = "metricsHost"
TEXTFILE_OPTION: Final = "metricsTextfile"
OTLP_OPTION: Final = "metricsOtlpEndpoint"
QUERY_OPTION: Final = "metricsQuery"
LOOPBACK: Final = "127.0.0.1"
# Prometheus' node_exporter reads no other files.
_TEXTFILE_SUFFIX: Final = ".prom"
_PORT: Final = re.compile("[0-9]{1,9}")


class MetricsTargets(NamedTuple):
    """Where metrics go; a port is one of `host`."""

    host: str = LOOPBACK
    port: int | None = None
    textfile: str | None = None
    otlp_endpoint: str | None = None


def metrics_targets(options: Mapping[str, str]) -> MetricsTargets | None:
    """Parse where metrics go, from options with lower-case names; None for nowhere."""
    host = options.get(HOST_OPTION.lower())
    targets = MetricsTargets(
        (host or LOOPBACK).strip(),
        _port(options.get(PORT_OPTION.lower())),
        _textfile(options.get(TEXTFILE_OPTION.lower())),
        _endpoint(options.get(OTLP_OPTION.lower())),
    )
    if targets.port is None and host is not None:
        raise OptionError(
            f"Option '{HOST_OPTION}' has no effect without '{PORT_OPTION}'",
            remedy=f"Set '{PORT_OPTION}' too, or remove '{HOST_OPTION}'",
        )
    return targets if any(each is not None for each in targets[1:]) else None


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip()
    if _PORT.fullmatch(digits) is None or not 0 < int(digits) < 2**16:
        raise OptionError(f"Option '{PORT_OPTION}' is {text!r}", remedy="Use a port from 1 to 65535")
    return int(digits)


def _textfile(text: str | None) -> str | None:
    if text is None:
        return None
    path = PurePath(text)
    if not path.is_absolute() or path.suffix != _TEXTFILE_SUFFIX or not text.isprintable():
        raise OptionError(
            f"Option '{TEXTFILE_OPTION}' is {text!r}",
            remedy=f"Use the absolute path of a file that ends with {_TEXTFILE_SUFFIX}",
        )
    return text


def _endpoint(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        url = urlsplit(text.strip())
        is_usable = url.scheme in ("http", "https") and bool(url.hostname) and url.username is None and url.port != 0
    except ValueError:
        # Of a port that is no number of one, or of a bracket without another.
        is_usable = False
    if not is_usable:
        # The text is not shown: a URL may have a password.
        raise OptionError(
            f"Option '{OTLP_OPTION}' is not an HTTP URL without a user name",
            remedy="Use the URL of the collector, such as http://localhost:4318/v1/metrics, and set "
            "OTEL_EXPORTER_OTLP_HEADERS in the driver's environment for credentials",
        )
    return text.strip()
