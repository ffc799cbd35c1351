"""A standalone broker: `broker-core --port 9092 --data-dir DIR --config conf/broker.properties`.

`python -m broker_core` is the same. The broker itself is imported when it starts, so that a missing library is reported
in one line, like a setting that cannot be used.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core import __version__
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError, DamageError, MissingExtraError

if TYPE_CHECKING:
    from broker_core.ports import Storage
    from broker_core.server.socket_server import SocketServer


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
    parser.add_argument("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR (%(default)s)")
    return parser


def _config(path: Path | None, kafka_version: str | None) -> BrokerConfig:
    from broker_core.server.properties_file import read_broker_properties
    from broker_core.wire.kafka_versions import version_settings

    config = BrokerConfig() if path is None else read_broker_properties(path.read_text())
    return config.override(version_settings(kafka_version, None))


async def _serve(arguments: argparse.Namespace, config: BrokerConfig) -> None:
    from broker_core.server.clock import SystemClock, SystemEntropy
    from broker_core.server.disk import DiskStorage
    from broker_core.server.listeners import plan_listeners
    from broker_core.server.metrics_endpoint import MetricsEndpoint
    from broker_core.server.socket_server import SocketServer
    from broker_core.simulation.disk import MemoryStorage

    storage: Storage = MemoryStorage() if arguments.data_dir is None else DiskStorage(arguments.data_dir)
    plans = plan_listeners(config, brokers=arguments.brokers, host=arguments.host, port=arguments.port)
    server = SocketServer(
        storage=storage,
        entropy=SystemEntropy(),
        clock=SystemClock(),
        config=config,
        listeners=plans,
        brokers=arguments.brokers,
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as after:
        await server.start()
        after.push_async_callback(server.stop)
        assert server.failure is not None
        where = _where(server)
        if arguments.metrics_port is not None:
            endpoint = MetricsEndpoint(server, loop, arguments.host, arguments.metrics_port)
            after.push_async_callback(asyncio.to_thread, endpoint.close)
            where += f", metrics at {endpoint.url}"
        kept = f"logs in {arguments.data_dir}" if arguments.data_dir else "logs in memory"
        level = server.cluster.config.transaction_version
        print(
            f"broker_core is listening on {where} (transaction.version {level}, {kept})",
            flush=True,
        )
        stopped = loop.create_task(stopping.wait())
        server.failure.add_done_callback(lambda _: stopping.set())
        await stopped
    if server.failure.done():
        server.failure.result()


def _where(server: "SocketServer") -> str:
    """Return the addresses in the form clients take; with listener names only where there are several."""
    by_listener = {
        name: ",".join(f"{host}:{port}" for host, port in addresses.values())
        for name, addresses in server.addresses.items()
    }
    if len(by_listener) == 1:
        return "".join(by_listener.values())
    return " and ".join(f"{name} {addresses}" for name, addresses in by_listener.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; return the exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_serve(arguments, _config(arguments.config, arguments.kafka_version)))
    except (ConfigError, DamageError, MissingExtraError, OSError) as error:
        print(f"broker_core cannot start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
