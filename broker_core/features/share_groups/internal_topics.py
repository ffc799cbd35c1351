"""The internal topic of share groups, and the keys by which its coordinators are looked up."""

import re
from typing import Final

from broker_core.broker.authorization import require
from broker_core.broker.partitions import InternalTopic
from broker_core.broker.request_context import RequestContext
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.states.state import standard_error
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import SHARE_GROUP_STATE_TOPIC

KEY_TYPE: Final = 2
# Only brokers look up share coordinators.
KEY_RIGHT: Final = "CLUSTER_ACTION CLUSTER"
_FIRST_WITH_KEYS: Final = 6
# A group, the id of a topic and a partition.
_KEY: Final = re.compile(r".*\S.*:[A-Za-z0-9_-]{22}:[+-]?\d{1,10}", re.DOTALL)


def _config(config: BrokerConfig) -> dict[str, str]:
    # Its coordinator deletes what later snapshots replace. There is one replica, whatever Kafka's `min.isr` is.
    return {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "segment.bytes": str(config.share_state_topic_segment_bytes),
        "retention.ms": "-1",
    }


INTERNAL_TOPIC: Final = InternalTopic(
    SHARE_GROUP_STATE_TOPIC,
    "share.coordinator.state.topic.num.partitions",
    _config,
    ("share partitions", "these share partitions then begin again"),
)


def check_key(context: RequestContext, key: str) -> None:
    if context.version >= _FIRST_WITH_KEYS:
        require(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if _KEY.fullmatch(key):
            return
    raise standard_error(ErrorCode.INVALID_REQUEST)
