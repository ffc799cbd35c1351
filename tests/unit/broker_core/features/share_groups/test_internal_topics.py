"""The internal topic of share groups beside the topics of the core."""

from broker_core.broker.partitions import coordinated_in, internal_partition_count, internal_topic_config
from broker_core.config import BrokerConfig
from broker_core.types import INTERNAL_TOPICS, SHARE_GROUP_STATE_TOPIC

SETTINGS = BrokerConfig().override({"share.coordinator.state.topic.num.partitions": "7"})


def test_only_the_topic_of_share_groups_is_shortened_by_its_coordinator() -> None:
    policies = {name: internal_topic_config(SETTINGS, name)["cleanup.policy"] for name in INTERNAL_TOPICS}
    assert policies == dict.fromkeys(INTERNAL_TOPICS, "compact") | {SHARE_GROUP_STATE_TOPIC: "delete"}


def test_topic_has_its_own_number_of_partitions_and_says_what_is_lost_with_one() -> None:
    assert internal_partition_count(SETTINGS, SHARE_GROUP_STATE_TOPIC) == 7
    assert len({coordinated_in(name) for name in INTERNAL_TOPICS}) == len(INTERNAL_TOPICS)
