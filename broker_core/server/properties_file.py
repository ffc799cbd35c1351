"""The properties file of a broker."""

import logging
from pathlib import Path

from broker_core.config import BrokerConfig, parse_properties
from broker_core.errors import ConfigError
from broker_core.settings.values import setting_of_kafka

logger = logging.getLogger(__name__)


def read_properties_file(path: Path) -> dict[str, str]:
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


def known_settings(text: str) -> dict[str, str]:
    settings = parse_properties(text)
    own = BrokerConfig.keys()
    unknown = sorted(key for key in settings if key not in own and setting_of_kafka(key) is None)
    if unknown:
        logger.warning("unknown settings, which have no effect: %s", ", ".join(unknown))
    if "log.dirs" in settings or "log.dir" in settings:
        logger.warning("log.dirs has no effect: the option --data-dir names the folder of the logs")
    return {key: value for key, value in settings.items() if key not in unknown}
