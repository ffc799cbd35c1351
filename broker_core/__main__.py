"""A standalone broker: `broker-core --port 9092 --data-dir DIR --config conf/broker.properties`.

`python -m broker_core` is the same. The broker itself is imported when it starts, so that a missing library is reported
in one line, like a setting that cannot be used.
"""

import argparse
import ctypes
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core import __version__
from broker_core.config import BrokerConfig, known_settings
from broker_core.errors import ConfigError, DamageError, MissingExtraError
from broker_core.errors_page import with_address
from broker_core.installed import parts

if TYPE_CHECKING:
    from broker_core.broker.cluster import Cluster
    from broker_core.ports import Storage
    from broker_core.server.thread import ServerThread
    from broker_core.testing.producing import LocalProducer

    # The thread of a broker, what calls a function in it, what writes records, and what else to print.
    Running = tuple[ServerThread, Callable[..., Any], Callable[..., Any], str]
    Start = Callable[[ExitStack], Running]

# The requests of a step are more objects than Python's limit of 700, so it would look at all of them in nearly every
# step: a tenth of the processor time of small transactions.
_OBJECTS_BEFORE_COLLECTION = 10_000
# Parameters of glibc's mallopt(3), and their values in bytes. By default the memory of each large request goes back to
# the system, and the page faults of the next one are a seventh of the processor time.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 128 * 1024 * 1024
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 32 * 1024 * 1024
_LOOK_AGAIN_S = 1.0


def _place(text: str) -> Path:
    """Refuse an empty path, which a script gives by a variable that is not set: it would mean the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is empty; if it comes from a variable, set the variable")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="broker-core", description="Run a Kafka-compatible broker.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--host", default="127.0.0.1", help="host of listeners that name none (%(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        help="port of the first broker, 0 for a free one; ignored when the setting listeners is given (%(default)s)",
    )
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers, on consecutive ports (%(default)s)")
    parser.add_argument("--kafka-version", help="the version of Kafka, such as 3.9, whose APIs and features are served")
    parser.add_argument("--data-dir", type=_place, help="folder for the logs; without it they are kept in memory")
    parser.add_argument("--config", type=_place, help="a properties file with Kafka's broker settings")
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="serve metrics for Prometheus at this port of --host, 0 for a free one; needs the extra "
        "metrics; without the option they are not served",
    )
    for feature in (*parts("service"), *parts("command")):
        feature.add_options(parser)
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    parser.add_argument("--log-level", type=str.upper, choices=levels, default="INFO", help="least level (%(default)s)")
    return parser


def _tune_memory() -> None:
    """Set up the process's memory for a broker: an embedded one leaves that to its process."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, *gc.get_threshold()[1:])
    # Only glibc has it.
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _run(arguments: argparse.Namespace, start: "Start") -> int:
    """Run a broker and the services beside it until a signal or a failure; return the exit code."""
    from broker_core.server.listeners import joined_addresses, started_line

    stopping = threading.Event()
    with ExitStack() as after:
        for number in (signal.SIGINT, signal.SIGTERM):
            after.callback(signal.signal, number, signal.signal(number, lambda *_: stopping.set()))
        thread, call, produce, announcement = start(after)
        services = {}
        if arguments.metrics_port is not None:
            from broker_core.server.metrics_endpoint import MetricsEndpoint

            take = partial(thread.act, lambda server: server.metrics())
            endpoint = MetricsEndpoint(take, arguments.host, arguments.metrics_port)
            after.callback(endpoint.close)
            services["metrics"] = endpoint.url
        for beside in parts("service"):
            service = beside.start(arguments, lambda: (call, produce))
            if service is not None:
                after.callback(service.close)
                services[beside.NAME] = service.url
        listeners = joined_addresses(thread.running().addresses)
        level = call(lambda cluster: cluster.metadata.transaction_version)
        print(started_line(listeners, level, arguments.data_dir, services), announcement, sep="", flush=True)
        # It fails for example if it cannot write a log.
        while thread.failure is None and not stopping.wait(_LOOK_AGAIN_S):
            pass
    return 0 if thread.failure is None else 1


def _start(arguments: argparse.Namespace, config: BrokerConfig, after: ExitStack) -> "Running":
    """Start a broker without anything for tests; `after` takes what stops it."""
    from broker_core.server.clock import SystemClock, SystemEntropy
    from broker_core.server.disk import open_data_folder
    from broker_core.server.listeners import plan_listeners
    from broker_core.server.socket_server import SocketServer
    from broker_core.server.thread import ServerThread
    from broker_core.simulation.disk import MemoryStorage

    plans = plan_listeners(config, brokers=arguments.brokers, host=arguments.host, port=arguments.port)
    files = ExitStack()

    def make() -> SocketServer:
        in_memory = arguments.data_dir is None
        storage: Storage = MemoryStorage() if in_memory else open_data_folder(arguments.data_dir, files.callback)
        return SocketServer(
            storage=storage,
            entropy=SystemEntropy(),
            clock=SystemClock(),
            config=config,
            listeners=plans,
            brokers=arguments.brokers,
        )

    # Recovery may take long.
    thread = ServerThread(make, lambda _: None, files.close, patience_s=None)
    thread.start()
    after.callback(thread.stop)

    def call(action: "Callable[[Cluster], Any]") -> Any:
        return thread.act(lambda server: action(server.cluster))

    @cache
    def producer() -> "LocalProducer":
        from broker_core.testing.local_client import LocalClient
        from broker_core.testing.producing import LocalProducer

        return LocalProducer(LocalClient(thread), call)

    return thread, call, lambda topic, records: producer().produce(topic, records, None, "commit", None), ""


def _settings_in(path: Path) -> dict[str, str]:
    """Return the known settings in a broker's properties file; raise `ConfigError`, with its path, if it is malformed.

    The file is in UTF-8, or else in Latin-1, which is the encoding that Apache Kafka reads.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return known_settings(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; return the exit code."""
    arguments = _parser().parse_args(argv)
    _tune_memory()
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from broker_core.wire.kafka_versions import version_settings

        settings = {} if arguments.config is None else _settings_in(arguments.config)
        settings |= version_settings(arguments.kafka_version, None)
        starts = [feature.start(arguments, settings) for feature in parts("command")]
        plain = partial(_start, arguments, BrokerConfig().override(settings))
        return _run(arguments, next(filter(None, starts), plain))
    except (ConfigError, DamageError, MissingExtraError, OSError) as error:
        print(with_address(error, f"broker_core cannot start: {error}"), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
