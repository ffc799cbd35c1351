"""Kafka from PySpark, exactly once: the data source `eos-kafka`.

Spark finds the format by itself where the package is installed:

    rows.writeStream.format("eos-kafka").option("kafka.bootstrap.servers", address).option("topic", "shouted")

Options, guarantees and limits are described in `EosKafkaDataSource`. The names in `__all__` are public; all other
modules are internal and may change in any release. The public names are imported when they are first used: every Spark
session that looks for data sources imports this package.
"""

# Type checkers treat a variable of this name as true; importing typing would cost more than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from broker_core import __version__
    from spark_eos.datasource import EosKafkaDataSource
    from spark_eos.errors import (
        AbortableError,
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        ClientStateError,
        DataLossError,
        DeliveryTimeoutError,
        DifferentRowsError,
        EosKafkaError,
        FencedError,
        LostTransactionError,
        OptionError,
        RecordTooLargeError,
        TopicError,
        TransactionError,
        UnansweredError,
        UnreachableError,
        UnsupportedError,
    )
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

# The module of each public name, as in the imports for type checkers above.
_MODULES = {
    "broker_core": ("__version__",),
    "spark_eos.datasource": ("EosKafkaDataSource",),
    "spark_eos.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "spark_eos.options.write_options": ("WriteOptions",),
    "spark_eos.progress_listener": ("ProgressListener",),
    "spark_eos.sink.dataframe_writes": ("foreach_batch_sink", "write"),
    "spark_eos.sink.task_placement": ("place_by_partition",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also before they are imported."""
    return sorted({*globals(), *__all__})
