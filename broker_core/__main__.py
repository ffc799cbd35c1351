"""A standalone broker: `broker-core --port 9092 --data-dir DIR --config conf/broker.properties`.

`python -m broker_core` is the same. The broker itself is imported when it starts, so that a missing library is reported
in one line, like a setting that cannot be used.
"""

import argparse
import asyncio
import ctypes
import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core import __version__
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError, DamageError, MissingExtraError
from broker_core.errors_page import with_address
from broker_core.installed import parts

if TYPE_CHECKING:
    from broker_core.broker.cluster import Cluster
    from broker_core.ports import Storage
    from broker_core.server.socket_server import SocketServer
    from broker_core.server.thread import ServerInLoop

# The requests of a step are more objects than Python's limit of 700, so it would look at all of them in nearly every
# step: a tenth of the processor time of small transactions.
_OBJECTS_BEFORE_COLLECTION = 10_000
# Parameters of glibc's mallopt(3), and their values in bytes. By default the memory of each large request goes back to
# the system, and the page faults of the next one are a seventh of the processor time.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 128 * 1024 * 1024
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 32 * 1024 * 1024


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
    parser.add_argument("--data-dir", type=Path, help="folder for the logs; without it they are kept in memory")
    parser.add_argument("--config", type=Path, help="a properties file with Kafka's broker settings")
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


async def _serve(arguments: argparse.Namespace, config: BrokerConfig) -> int:
    from broker_core.server.thread import log_unclean_close

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as starting:
        server = await _start(arguments, config, starting)
        running = starting.pop_all()

    def failed(failure: "asyncio.Future[None]") -> None:
        # The server has logged it; asyncio would log it again unless it is looked at.
        failure.exception()
        stopping.set()

    assert server.failure is not None
    server.failure.add_done_callback(failed)
    try:
        async with running:
            await stopping.wait()
    except OSError as error:
        log_unclean_close(error)
        return 1
    return 1 if server.has_failed else 0


async def _start(arguments: argparse.Namespace, config: BrokerConfig, after: AsyncExitStack) -> "SocketServer":
    """Start the server and the services beside it, and print their addresses; `after` takes what stops them."""
    from broker_core.server.clock import SystemClock, SystemEntropy
    from broker_core.server.disk import open_data_folder
    from broker_core.server.listeners import joined_addresses, plan_listeners, started_line
    from broker_core.server.metrics_endpoint import MetricsEndpoint, metrics_in
    from broker_core.server.socket_server import SocketServer
    from broker_core.server.thread import ServerInLoop
    from broker_core.simulation.disk import MemoryStorage

    plans = plan_listeners(config, brokers=arguments.brokers, host=arguments.host, port=arguments.port)
    storage: Storage = MemoryStorage()
    if arguments.data_dir is not None:
        storage = open_data_folder(arguments.data_dir, after.callback)
    server = SocketServer(
        storage=storage,
        entropy=SystemEntropy(),
        clock=SystemClock(),
        config=config,
        listeners=plans,
        brokers=arguments.brokers,
    )
    await server.start()
    after.push_async_callback(server.stop)
    services = {}
    if arguments.metrics_port is not None:
        loop = asyncio.get_running_loop()
        endpoint = MetricsEndpoint(metrics_in(loop, server.metrics), arguments.host, arguments.metrics_port)
        after.push_async_callback(asyncio.to_thread, endpoint.close)
        services["metrics"] = endpoint.url
    for beside in parts("service"):
        service = beside.start(arguments, lambda: _access(ServerInLoop(server)))
        if service is not None:
            after.push_async_callback(asyncio.to_thread, service.close)
            services[beside.NAME] = service.url
    level = server.cluster.metadata.transaction_version
    print(started_line(joined_addresses(server.addresses), level, arguments.data_dir, services), flush=True)
    return server


def _access(server: "ServerInLoop") -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two functions of a service: to call something in the broker's thread, and to write records."""
    from broker_core.testing.local_client import LocalClient
    from broker_core.testing.producing import LocalProducer

    def call(action: "Callable[[Cluster], Any]") -> Any:
        return server.act(lambda running: action(running.cluster))

    producer = LocalProducer(LocalClient(server), call)
    return call, lambda topic, records: producer.produce(topic, records, None, "commit", None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; return the exit code."""
    arguments = _parser().parse_args(argv)
    _tune_memory()
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from broker_core.server.properties_file import read_properties_file
        from broker_core.wire.kafka_versions import version_settings

        settings = {} if arguments.config is None else read_properties_file(arguments.config)
        settings |= version_settings(arguments.kafka_version, None)
        for feature in parts("command"):
            code: int | None = feature.run(arguments, settings)
            if code is not None:
                return code
        return asyncio.run(_serve(arguments, BrokerConfig().override(settings)))
    except (ConfigError, DamageError, MissingExtraError, OSError) as error:
        print(with_address(error, f"broker_core cannot start: {error}"), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
