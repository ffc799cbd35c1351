"""A Kafka-compatible broker in pure Python, to be embedded in tests or run inside a simulation.

    from broker_core import EmbeddedBroker

    with EmbeddedBroker(topics={"lines": 4}) as kafka:
        run_my_code(kafka.bootstrap_servers)

The names in `__all__` are public, and so are the classes of `broker_core.aio`, the fixtures of
`broker_core.pytest_plugin` and the command line `python -m broker_core`. All other modules are internal and may change
in any release. The public names are imported when they are first used, so that `import broker_core` is fast. The
package does not import `spark_eos`, Spark, Arrow or numpy.
"""

from broker_core.version import __version__

# Type checkers take a variable of this name as true; importing typing for it would cost more than all of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from broker_core.broker.fault_injection import Delay, Disconnect, Drop, Error, Fault, Hold, Throttle
    from broker_core.broker.monitoring.inspection import PartitionView, RecordView, TransactionView
    from broker_core.broker.monitoring.metrics import BrokerMetrics
    from broker_core.broker.request_log import RequestSeen
    from broker_core.embedded import EmbeddedBroker
    from broker_core.errors import ConfigError, DamageError, ErrorCode, KafkaError
    from broker_core.features.recording.replay import AnswerDifference, replay
    from broker_core.security.sasl_oauthbearer import InvalidToken, ValidToken
    from broker_core.server.cluster_controls import BrokerHandle, ClockHandle, Outage
    from broker_core.testing.data_controls import RecordList
    from broker_core.testing.groups import Group, GroupMember, GroupView
    from broker_core.testing.inspection_controls import Recording
    from broker_core.testing.producing import ProducerRecord, RecordMetadata
    from broker_core.testing.snapshots import Snapshot
    from broker_core.types import TopicPartition
    from broker_core.wire.api_names import ApiName

__all__ = [
    "AnswerDifference",
    "ApiName",
    "BrokerHandle",
    "BrokerMetrics",
    "ClockHandle",
    "ConfigError",
    "DamageError",
    "Delay",
    "Disconnect",
    "Drop",
    "EmbeddedBroker",
    "Error",
    "ErrorCode",
    "Fault",
    "Group",
    "GroupMember",
    "GroupView",
    "Hold",
    "InvalidToken",
    "KafkaError",
    "Outage",
    "PartitionView",
    "ProducerRecord",
    "RecordList",
    "RecordMetadata",
    "RecordView",
    "Recording",
    "RequestSeen",
    "Snapshot",
    "Throttle",
    "TopicPartition",
    "TransactionView",
    "ValidToken",
    "__version__",
    "replay",
]

# The module of each public name, as in the imports for type checkers above.
_MODULES = {
    "broker_core.broker.fault_injection": ("Delay", "Disconnect", "Drop", "Error", "Fault", "Hold", "Throttle"),
    "broker_core.broker.monitoring.inspection": ("PartitionView", "RecordView", "TransactionView"),
    "broker_core.broker.monitoring.metrics": ("BrokerMetrics",),
    "broker_core.broker.request_log": ("RequestSeen",),
    "broker_core.embedded": ("EmbeddedBroker",),
    "broker_core.errors": ("ConfigError", "DamageError", "ErrorCode", "KafkaError"),
    "broker_core.security.sasl_oauthbearer": ("InvalidToken", "ValidToken"),
    "broker_core.server.cluster_controls": ("BrokerHandle", "ClockHandle", "Outage"),
    "broker_core.testing.groups": ("Group", "GroupMember", "GroupView"),
    "broker_core.testing.producing": ("ProducerRecord", "RecordMetadata"),
    "broker_core.testing.data_controls": ("RecordList",),
    "broker_core.testing.inspection_controls": ("Recording",),
    "broker_core.features.recording.replay": ("AnswerDifference", "replay"),
    "broker_core.testing.snapshots": ("Snapshot",),
    "broker_core.types": ("TopicPartition",),
    "broker_core.wire.api_names": ("ApiName",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also the names that are not imported yet."""
    return sorted({*globals(), *__all__})
