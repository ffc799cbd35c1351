"""The options that name a cluster, and the properties file for a secured one, in the format of Kafka's own tools."""

import argparse
from pathlib import Path

from broker_core.properties import read_properties
from spark_eos.errors import OptionError
from spark_eos.options.client import PREFIX, ClientOptions, client_options
from spark_eos.options.setting_table import ADMIN


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster and the settings for it."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT", help="addresses of brokers, separated by commas"
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with settings of the client, such as security.protocol",
    )


def options_of(bootstrap_servers: str, config_path: str | None) -> ClientOptions:
    """Return the client's options from the command line; names in the file are the Java client's or librdkafka's."""
    settings = {} if config_path is None else parse_properties(_read(config_path))
    settings["bootstrap.servers"] = bootstrap_servers
    return client_options({PREFIX + name: value for name, value in settings.items()}, side=ADMIN)


def parse_properties(text: str) -> dict[str, str]:
    r"""Read the settings of a file; of a name that comes twice the last one counts.

    >>> parse_properties("# how to get in\nsecurity.protocol = SASL_SSL\n")
    {'security.protocol': 'SASL_SSL'}
    """
    # Java keeps spaces at the end of a line, where they are always a mistake.
    return {each.name: each.value.rstrip() for each in read_properties(text)}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"Cannot read the file of --command-config: {error}", remedy="Give a properties file in UTF-8"
        ) from error
