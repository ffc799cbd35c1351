"""Kafka from PySpark, exactly once: the data source `eos-kafka`.

Spark finds the format by itself where the package is installed:

    rows.writeStream.format("eos-kafka").option("kafka.bootstrap.servers", address).option("topic", "shouted")

Options, guarantees and limits are described in `EosKafkaDataSource`. The names in `__all__` are public; all other
modules are internal and may change in any release. The public names are imported when they are first used: every Spark
session that looks for data sources imports this package.
"""

# ruff: noqa: F403, F405 (a test imports the names in `__all__`)
# Type checkers treat a variable of this name as true; importing typing would cost more than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from broker_core import __version__
    from spark_eos.datasource import EosKafkaDataSource
    from spark_eos.errors import *
    from spark_eos.options.write_options import WriteOptions
    from spark_eos.progress_listener import ProgressListener
    from spark_eos.sink.dataframe_writes import foreach_batch_sink, write
    from spark_eos.sink.task_placement import place_by_partition

__all__ = [
    "AbortableError",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "ClientStateError",
    "DataLossError",
    "DeliveryTimeoutError",
    "DifferentRowsError",
    "EosKafkaDataSource",
    "EosKafkaError",
    "FencedError",
    "LostTransactionError",
    "OptionError",
    "ProgressListener",
    "RecordTooLargeError",
    "TopicError",
    "TransactionError",
    "UnansweredError",
    "UnreachableError",
    "UnsupportedError",
    "WriteOptions",
    "__version__",
    "foreach_batch_sink",
    "place_by_partition",
    "write",
]

# The modules of the public names that are no errors, as in the imports for type checkers above.
_MODULES = {
    "EosKafkaDataSource": "spark_eos.datasource",
    "ProgressListener": "spark_eos.progress_listener",
    "WriteOptions": "spark_eos.options.write_options",
    "__version__": "broker_core",
    "foreach_batch_sink": "spark_eos.sink.dataframe_writes",
    "place_by_partition": "spark_eos.sink.task_placement",
    "write": "spark_eos.sink.dataframe_writes",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES.get(name, "spark_eos.errors")), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
