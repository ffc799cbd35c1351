"""The internal topic of share groups, and the keys by which its coordinators are looked up."""

import re
from typing import Final

from broker_core.broker.authorization import require
from broker_core.broker.request_context import RequestContext
from broker_core.config import BrokerConfig
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, needs
from broker_core.types import SHARE_GROUP_STATE_TOPIC

TOPIC: Final = SHARE_GROUP_STATE_TOPIC
PARTITION_COUNT: Final = "share.coordinator.state.topic.num.partitions"
COORDINATED: Final = ("share partitions", "these share partitions then begin again")
KEY_TYPE: Final = 2
# Only brokers look up share coordinators.
KEY_RIGHT: Final = needs(Operation.CLUSTER_ACTION, CLUSTER)
_FIRST_WITH_KEYS: Final = 6
# A group, the id of a topic and a partition.
_KEY: Final = re.compile(r".*\S.*:[A-Za-z0-9_-]{22}:[+-]?\d{1,10}", re.DOTALL)


def topic_config(config: BrokerConfig) -> dict[str, str]:
    """Return the settings Kafka creates the topic with, apart from `min.isr`: there is one replica here."""
    # Its coordinator deletes what later snapshots replace.
    return {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "segment.bytes": str(config.share_state_topic_segment_bytes),
        "retention.ms": "-1",
    }


def check_key(context: RequestContext, key: str) -> None:
    """Raise the error for a key that does not name a share partition, or that the client may not look up."""
    if context.version < _FIRST_WITH_KEYS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, STANDARD_MESSAGES[ErrorCode.INVALID_REQUEST])
    require(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if not _KEY.fullmatch(key):
        raise KafkaError(ErrorCode.INVALID_REQUEST, STANDARD_MESSAGES[ErrorCode.INVALID_REQUEST])
