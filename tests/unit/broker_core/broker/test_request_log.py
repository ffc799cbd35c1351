"""What requests name, as the log of requests and faults see it."""

from uuid import UUID

import pytest

from broker_core.broker.apis import SERVED
from broker_core.broker.request_log import RequestSubject, _subject, nameable
from broker_core.wire.framing import Request
from tests.support.broker_core.full_requests import TOPIC, VERSIONS, full_requests

TOPIC_ID = UUID(int=7)
# The full request of the API names one kind of what it can name.
UNNAMED = {"FindCoordinator": {"transactional_id"}, "OffsetDelete": {"topic", "partition"}}
UNNAMED["ConsumerGroupHeartbeat"] = UNNAMED["CreateTopics"] = UNNAMED["CreatePartitions"] = {"partition"}
UNNAMED["Produce"] = {"transactional_id"}


def subject(name: str, version: int) -> RequestSubject:
    api = next(each for each in SERVED.values() if each.name == name)
    body = full_requests(version, TOPIC_ID)[name]()
    return _subject(Request(api, version, 1, "c", body, 100), {TOPIC_ID: TOPIC})


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_request_names_what_its_api_can_name(name: str) -> None:
    api = next(each for each in SERVED.values() if each.name == name)
    for version in VERSIONS[name]:
        about = subject(name, version)
        found = {
            "topic": about.topics,
            "partition": about.partitions,
            "group": about.groups,
            "transactional_id": about.transactional_ids,
        }
        named = {kind for kind, values in found.items() if values}
        can = nameable(api.request, version)
        assert named <= can
        assert can - named <= UNNAMED.get(name, set()), version


@pytest.mark.parametrize("name", ["AlterShareGroupOffsets", "DeleteShareGroupOffsets"])
def test_topic_name_of_requests_for_share_groups_is_seen(name: str) -> None:
    assert subject(name, 0).topics == {TOPIC}
