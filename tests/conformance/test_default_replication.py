"""The replicas of topics whose creation names no replication factor, on three brokers."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.clients import unique
from tests.support.messages import creation
from tests.support.three_brokers import ThreeBrokers, three_brokers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
BROKER = 4
SETTING = "default.replication.factor"
TOO_MANY = (
    "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only 3 "
    "broker(s) are registered or some brokers have all their log directories cordoned."
)


@pytest.fixture(scope="module", params=["2", "4"])
def factor(request: pytest.FixtureRequest) -> str:
    """Return the default of the cluster: a number that it can reach, and one that it cannot."""
    factor: str = request.param
    return factor


@pytest.fixture(scope="module")
def three(
    request: pytest.FixtureRequest, factor: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThreeBrokers]:
    """Return three brokers with the default."""
    with three_brokers(request.param, tmp_path_factory.mktemp(request.param), {SETTING: factor}) as running:
        yield running


def create(three: ThreeBrokers, factor: int) -> tuple[int, str | None, int]:
    """Create a topic; return code, message and replication factor."""
    [answer] = three.ask(creation(unique("default"), num_partitions=2, replication_factor=factor), 7).topics
    return answer.error_code, answer.error_message, answer.replication_factor


def replicas(three: ThreeBrokers, name: str) -> tuple[int, list[int]]:
    """Ask for a topic that may be created; return the code, and the number of replicas of each partition."""
    topics = [m.MetadataRequest.MetadataRequestTopic(name=name)]
    [topic] = three.ask(m.MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9).topics
    return topic.error_code, [len(set(each.replica_nodes)) for each in topic.partitions]


def test_creation_without_a_factor_uses_the_default(three: ThreeBrokers, factor: str):
    refused = (ErrorCode.INVALID_REPLICATION_FACTOR, TOO_MANY, -1)
    assert create(three, -1) == ((0, None, 2) if factor == "2" else refused)
    assert create(three, 1) == (0, None, 1)
    assert create(three, 4) == refused


def test_a_topic_that_is_created_by_its_use_has_the_default(three: ThreeBrokers, factor: str):
    name = unique("used")
    if factor == "2":
        wait_until(lambda: replicas(three, name) == (0, [2]), "the topic is created")
    else:
        assert [replicas(three, name) for _ in range(3)] == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])] * 3


def test_the_default_is_described_and_does_not_change(three: ThreeBrokers, factor: str):
    form = m.DescribeConfigsRequest.DescribeConfigsResource
    wanted = form(resource_type=BROKER, resource_name="1", configuration_keys=[SETTING])
    request = m.DescribeConfigsRequest(resources=[wanted], include_synonyms=False, include_documentation=False)
    [entry] = three.ask(request, 4).results[0].configs
    assert (entry.value, entry.read_only) == (factor, True)
    changes: Any = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    change = changes.AlterableConfig(name=SETTING, config_operation=0, value="1")
    resource = changes(resource_type=BROKER, resource_name="1", configs=[change])
    [answer] = three.ask(m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"Cannot update these configs dynamically: [{SETTING}]",
    )
