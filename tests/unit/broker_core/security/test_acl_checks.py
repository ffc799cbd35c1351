"""The table of checks matches the rights that the handlers request, for every served API."""

from functools import cache

import pytest

from broker_core.broker.apis import APIS, SERVED
from broker_core.broker.authorization import REFUSALS
from broker_core.broker.partitions import internal_topics
from broker_core.security.principals import user
from broker_core.wire import messages as m
from tests.support.broker_core.answers import error_codes
from tests.support.broker_core.full_requests import full_requests
from tests.support.broker_core.requests import fetch_request, init_producer, plain_commit, produce, transactional
from tests.support.broker_core.rights import FILTERED, Check, Right, check_of
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import consumer_join, creation, filled

TOPIC, GROUP, MEMBERS, ID = "t", "g", "members", "open"
CHECKS = {name: tuple(map(check_of, api.rights)) for name, api in APIS.items()}
# The authentication tests cover the APIs that are served before the client is known.
UNASKED = {name for name, checks in CHECKS.items() if not checks}
REFUSED = frozenset(REFUSALS.values())
PAIRS = [(name, check) for name, checks in CHECKS.items() for check in checks]


class Spy:
    """An authorizer that records the requested rights and denies the given ones, or all of them for None."""

    def __init__(self, denied=frozenset()):
        self.denied = denied
        self.asked = set()

    def allows(self, _principal, _host, operation, resource_type, _name):
        right = Right(operation, resource_type)
        self.asked.add(right)
        return self.denied is not None and right not in self.denied

    def allowed_operations(self, *_about):
        return frozenset({3})

    def allows_on_any(self, principal, host, operation, resource_type):
        return self.allows(principal, host, operation, resource_type, "")


def world(name):
    """Return a client of a cluster with a topic, a group and an open transaction, and what the requests of an API need.

    A share group is made only for requests of share groups, and for the list of all groups.
    """
    cluster = direct_cluster(
        settings={
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "delegation.token.secret.key": "secret",
        }
    )
    cluster.controller.create_topic(TOPIC, 1)
    client = DirectClient(cluster, principal=user("administrator"))
    # The broker may be one without a feature.
    if "CreateDelegationToken" in APIS:
        owner = ["User", "owner"]
        token = {"owner": owner, "requester": owner, "renewers": [], "times": [0, 2**62, 2**62]}
        cluster.metadata.record({"type": "delegation_token", "name": "token", "token": token})
    for topic in internal_topics():
        cluster.controller.ensure_topic(topic)
    identity = init_producer(client, ID)
    added = client.ask(
        filled(
            m.AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
        ),
        3,
    )
    assert set(error_codes(added)) == {0}, added
    joined = client.ask(consumer_join(MEMBERS, TOPIC), 1)
    assert joined.assignment is not None
    topic_id = cluster.metadata.topic(TOPIC).topic_id
    if "ShareGroupHeartbeat" in APIS and ("Share" in name or name == "ListGroups"):
        join_share_group(client, topic_id)
    client.ask(plain_commit(1, group=GROUP), 8)
    client.identity = identity
    return client


def join_share_group(client, topic_id):
    """Let a member join a share group and fetch, and set the offsets of another group."""
    shared = client.ask(
        m.ShareGroupHeartbeatRequest(group_id="sharers", member_id="x", member_epoch=0, subscribed_topic_names=[TOPIC]),
        1,
    )
    assert shared.error_code == 0
    fetch = full_requests(2, topic_id)["ShareFetch"]()
    fetch.group_id = "sharers"
    assert set(error_codes(client.ask(fetch, 2))) == {0}
    altered = client.ask(full_requests(0, topic_id)["AlterShareGroupOffsets"](), 0)
    assert set(error_codes(altered)) == {0}


def more_requests(client):
    """Yield requests with their versions that need other rights than those of `full_requests`."""
    settings = {"resources": [{"resource_type": 32, "resource_name": GROUP, "configuration_keys": None}]}

    def changes(form):
        """Change no setting, of a broker and of a group."""
        for kind in (4, 32):
            resource = {"resource_type": kind, "resource_name": "1", "configs": []}
            yield filled(form, validate_only=False, resources=[resource])

    share_keys = [(m.FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]), 6)]
    if "ShareGroupHeartbeat" not in APIS:
        share_keys.clear()
    return {
        "Metadata": [
            (m.MetadataRequest(topics=None, include_cluster_authorized_operations=True), 10),
            (filled(m.MetadataRequest, topics=[{"name": "new"}], allow_auto_topic_creation=True), 9),
        ],
        "FindCoordinator": [(m.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4), *share_keys],
        "Produce": [produce(transactional(client.identity), transactional_id=ID)],
        "Fetch": [(fetch_request(TOPIC, {}, replica_id=2, min_bytes=0), 11)],
        "InitProducerId": [(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)],
        "DescribeTransactions": [(m.DescribeTransactionsRequest(transactional_ids=[ID]), 0)],
        "ConsumerGroupDescribe": [(m.ConsumerGroupDescribeRequest(group_ids=[MEMBERS]), 1)],
        "DescribeConfigs": [(filled(m.DescribeConfigsRequest, **settings), 4)],
        "AlterConfigs": [(each, 2) for each in changes(m.AlterConfigsRequest)],
        "IncrementalAlterConfigs": [(each, 1) for each in changes(m.IncrementalAlterConfigsRequest)],
        "CreateTopics": [(creation("newer"), 7)],
    }


def requests(client, name):
    """Yield every known request of an API, at its first and its last version."""
    api = next(api for api in SERVED.values() if api.name == name)
    topic_id = client.cluster.metadata.topic(TOPIC).topic_id
    # Version 3 is the last version of AddPartitionsToTxn for clients.
    for version in sorted({api.min_version, api.max_version} | {3} & {api.max_version - 2}):
        yield full_requests(version, topic_id)[name](), version
    yield from more_requests(client).get(name, [])


@cache
def run(name, denied):
    """Send the requests of an API under a spy; return the spy and all responses, the same for several tests."""
    client = world(name)
    spy = Spy(denied)
    client.cluster.brokers[1].authorizer = spy
    answers = [client.ask(request, version) for request, version in list(requests(client, name))]
    assert not client.closed
    return spy, answers


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_handlers_check_exactly_the_rights_in_the_table(name):
    if name.startswith("Sasl"):
        assert CHECKS[name] == ()
        return
    listed = {right for check in CHECKS[name] for right in check.one_of}
    asked = set()
    alternatives = {frozenset({right}) for right in listed} | {frozenset(check.one_of) for check in CHECKS[name]}
    for denied in (None, frozenset(), *alternatives):
        asked |= run(name, denied)[0].asked
    assert asked == listed


# Rules G.1/18 and G.1/19, among others.
@pytest.mark.parametrize(
    ("name", "check"),
    PAIRS,
    ids=[f"{name}-{check.one_of[-1].operation.name}-{check.one_of[-1].resource_type.name}" for name, check in PAIRS],
)
def test_missing_right_returns_the_error_of_the_table(name, check: Check):
    before = run(name, frozenset())[1]
    with_none = run(name, frozenset(check.one_of))[1]
    codes = [set(error_codes(answer)) for answer in with_none]
    if check.refused is FILTERED:
        assert any(one != other for one, other in zip(map(str, before), map(str, with_none), strict=True))
    else:
        assert check.refused not in {code for answer in before for code in error_codes(answer)}
        assert any(check.refused in each for each in codes), with_none


@pytest.mark.parametrize(
    ("name", "check"),
    [pair for pair in PAIRS if len(pair[1].one_of) > 1],
    ids=[name for name, check in PAIRS if len(check.one_of) > 1],
)
def test_any_one_of_the_alternative_rights_suffices(name, check):
    for right in check.one_of:
        rest = frozenset(check.one_of) - {right}
        codes = {code for answer in run(name, rest)[1] for code in error_codes(answer)}
        assert not codes & REFUSED, (right, codes)


@pytest.mark.parametrize("name", sorted(set(CHECKS) - UNASKED))
def test_client_without_any_right_learns_nothing_else(name):
    answers = run(name, None)[1]
    only_filtered = all(check.refused is FILTERED for check in CHECKS[name])
    refusals = REFUSED | ({0} if only_filtered or name == "Metadata" else set())
    codes = {code for answer in answers for code in error_codes(answer)} - {0}
    assert codes <= refusals, answers
