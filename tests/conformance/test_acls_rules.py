"""Combinations of ACLs, and the requests that create, describe and delete them, on both brokers."""

from typing import Any

import pytest
from crc32c import crc32c

from broker_core.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from broker_core.wire import messages as m
from tests.support.clients import unique
from tests.support.guarded_kafka import Stage, create_acls, delete_acls, list_acls
from tests.support.messages import EVERY_ACL, filled, offsets_request
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, record_batch
from tests.support.waiting import wait_until

READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
HERE = "127.0.0.1"


def may(stage: Stage) -> tuple[bool, bool]:
    """Return whether the user may describe and read the topic."""
    described = stage.client.send(offsets_request(stage.topic, isolation=1), 7)
    read = stage.session.producers(stage.topic)
    return described.topics[0].partitions[0].error_code == 0, read.error_code == 0


# The grants, as arguments of `Stage.grant`, where TOPIC stands for the name, and what the user may then do.
TOPIC, HALF, NEXT = object(), object(), object()
NOTHING, SEE, BOTH = (False, False), (True, False), (True, True)
RULES: list[tuple[str, list[dict[str, Any]], tuple[bool, bool]]] = [
    ("nothing", [], NOTHING),
    ("reading", [{"operation": READ}], BOTH),
    ("everything", [{"operation": ALL}], BOTH),
    ("describing", [{"operation": DESCRIBE}], SEE),
    ("writing", [{"operation": WRITE}], SEE),
    ("deleting", [{"operation": Operation.DELETE}], SEE),
    ("altering", [{"operation": Operation.ALTER}], SEE),
    ("creating", [{"operation": Operation.CREATE}], NOTHING),
    ("altering settings", [{"operation": Operation.ALTER_CONFIGS}], NOTHING),
    ("describing settings", [{"operation": Operation.DESCRIBE_CONFIGS}], NOTHING),
    ("acting as a broker", [{"operation": Operation.CLUSTER_ACTION}], NOTHING),
    ("a prefix", [{"name": HALF, "pattern": PREFIXED}], BOTH),
    ("the whole name as a prefix", [{"pattern": PREFIXED}], BOTH),
    ("a longer prefix", [{"name": NEXT, "pattern": PREFIXED}], NOTHING),
    ("half the name literally", [{"name": HALF}], NOTHING),
    ("a group of the name", [{"kind": ResourceType.GROUP}], NOTHING),
    ("this host", [{"host": HERE}], BOTH),
    ("another host", [{"host": "127.0.0.2"}], NOTHING),
    ("this network", [{"host": "127.0.0.0/8"}], BOTH),
    ("this network by another address", [{"host": "127.9.9.9/8"}], BOTH),
    ("another network", [{"host": "10.0.0.0/8"}], NOTHING),
    ("a network of the other kind", [{"host": "::/1"}], NOTHING),
    ("all users", [{"who": "User:*"}], BOTH),
    ("another user", [{"who": "User:other"}], NOTHING),
    ("a group of users", [{"who": "Group:*"}], NOTHING),
    ("reading, and not by this user", [{}, {"permission": DENY}], SEE),
    ("reading, and nothing by this user", [{}, {"permission": DENY, "operation": ALL}], NOTHING),
    ("reading, and no describing", [{}, {"permission": DENY, "operation": DESCRIBE}], (False, True)),
    ("reading, and not by any user", [{}, {"permission": DENY, "who": "User:*"}], SEE),
    ("reading, and nothing below a prefix", [{}, {"permission": DENY, "name": HALF, "pattern": PREFIXED}], SEE),
    ("a prefix, and not this topic", [{"name": HALF, "pattern": PREFIXED}, {"permission": DENY}], SEE),
    ("reading, and not from here", [{}, {"permission": DENY, "host": HERE}], SEE),
    ("reading, and not from elsewhere", [{}, {"permission": DENY, "host": "10.0.0.0/8"}], BOTH),
    ("reading, and not by another user", [{}, {"permission": DENY, "who": "User:other"}], BOTH),
]


@pytest.mark.parametrize(("rules", "allowed"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_acls_allow_and_deny(stage: Stage, rules: list[dict[str, Any]], allowed: tuple[bool, bool]) -> None:
    names = {TOPIC: stage.topic, HALF: stage.topic[:-3], NEXT: f"{stage.topic}x"}
    for rule in rules:
        rest = {"operation": READ, "kind": ResourceType.TOPIC, "name": TOPIC} | rule
        stage.grant(
            rest.pop("operation"),
            rest.pop("kind"),
            names.get(rest["name"], rest["name"]),
            **{key: value for key, value in rest.items() if key != "name"},
        )
    # The broker that lists an ACL decides by it.
    assert may(stage) == allowed


def test_wildcard_acl_covers_all_topics(stage: Stage) -> None:
    stage.grant(READ, ResourceType.TOPIC, "*")
    assert may(stage) == BOTH
    stage.grant(READ, ResourceType.TOPIC, stage.topic, permission=DENY)
    assert may(stage) == SEE


def acl(**fields: Any) -> dict[str, Any]:
    """Return an ACL of a stranger for a topic that does not exist, with these fields changed."""
    return {
        "resource_type": 2,
        "resource_name": unique("topic"),
        "resource_pattern_type": 3,
        "principal": "User:stranger",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **fields,
    }


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("resource_type", 99, 42),
        ("resource_pattern_type", 99, 42),
        ("operation", 99, 42),
        ("permission_type", 99, 42),
        ("principal", "stranger", 42),
        ("resource_name", "", 42),
        ("resource_type", 4, 42),
        ("host", "", 42),
        ("host", "10.0.0.0/33", 42),
        ("host", "10.0.0/8", 42),
        ("host", "10.0.0.0/", 42),
        ("host", "10.0.0.1/255.0.0.0", 42),
        ("host", "::1/129", 42),
        ("host", "::1/64", 0),
        ("host", "10.1.2.3/8", 0),
        ("host", "not a host", 0),
        ("host", "10.0.0.0/0", 0),
        ("principal", ":", 0),
        ("principal", "Group:a", 0),
        ("operation", 13, 0),
        ("operation", 15, 0),
        ("resource_type", 6, 0),
        ("resource_type", 7, 0),
        ("resource_name", "*", 0),
        ("host", "10.0.0.0/08", 0),
    ],
)
def test_acl_fields_are_validated(stage: Stage, field: str, value: Any, code: int) -> None:
    assert create_acls(stage.root, acl(**{field: value}), acl(resource_pattern_type=4)) == [code, 0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resource_type", 1),
        ("resource_pattern_type", 1),
        ("resource_pattern_type", 2),
        ("operation", 1),
        ("permission_type", 1),
    ],
)
def test_filter_only_value_fails_the_whole_create_request(stage: Stage, field: str, value: int) -> None:
    good = acl()
    assert create_acls(stage.root, good | {field: value}, good) == [-1, -1]
    assert list_acls(stage.root, resource_name_filter=good["resource_name"]) == set()


def test_too_many_acls_for_one_request_are_refused(stage: Stage) -> None:
    """Kafka counts the ACLs that are new, or that the filters match together."""
    who, most = f"User:{stage.user}-many", 10_000
    many = [acl(resource_name=f"{stage.missing}{each}", principal=who) for each in range(most + 1)]
    answer = stage.root.send(filled(m.CreateAclsRequest, creations=[acl(principal="stranger"), *many]), 3)
    message = "Unable to perform excessively large batch operation."
    assert {(each.error_code, each.error_message) for each in answer.results} == {(44, message)}
    assert create_acls(stage.root, many[0]) == [0]
    assert set(create_acls(stage.root, *many, many[1])) == {0}
    mine = {"principal_filter": who}
    wait_until(lambda: len(list_acls(stage.root, **mine)) == most + 1, "the ACLs are known")
    filters = [EVERY_ACL | {"operation": 99}, EVERY_ACL | mine]
    results = stage.root.send(filled(m.DeleteAclsRequest, filters=filters), 3).filter_results
    message = "Cannot remove more than 10000 acls in a single delete operation."
    assert [(each.error_code, each.error_message, each.matching_acls) for each in results] == [(42, message, [])] * 2
    one = mine | {"resource_name_filter": many[0]["resource_name"]}
    assert delete_acls(stage.root, one, one) == [(0, 1), (0, 1)]
    assert delete_acls(stage.root, mine) == [(0, most)]


def stored(stage: Stage) -> dict[str, tuple[Any, ...]]:
    """Create ACLs that filters distinguish, and return them by a name."""
    base = stage.missing
    acls = {
        "literal": (2, 3, f"{base}abc", stage.user, "*", 3, 3),
        "prefix": (2, 4, f"{base}ab", stage.user, "*", 3, 3),
        "other": (2, 4, f"{base}x", stage.user, "*", 4, 2),
        "group": (3, 3, f"{base}abc", stage.user, HERE, 8, 3),
        "all": (2, 3, "*", stage.user, "*", 14, 3),
        "cluster": (4, 3, CLUSTER_NAME, stage.user, "*", 7, 3),
    }
    named = {name: (*acl[:3], f"User:{acl[3]}", *acl[4:]) for name, acl in acls.items()}
    fields = (
        "resource_type",
        "resource_pattern_type",
        "resource_name",
        "principal",
        "host",
        "operation",
        "permission_type",
    )
    for _ in range(2):
        # Creating an existing ACL again is no error.
        assert set(create_acls(stage.root, *(dict(zip(fields, acl, strict=True)) for acl in named.values()))) == {0}
    mine = {"principal_filter": f"User:{stage.user}"}
    wait_until(lambda: list_acls(stage.root, **mine) == set(named.values()), "the ACLs are known")
    return named


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"literal", "prefix", "other", "group", "all", "cluster"}),
    ({"resource_type_filter": 2}, {"literal", "prefix", "other", "all"}),
    ({"pattern_type_filter": 3}, {"literal", "group", "all", "cluster"}),
    ({"pattern_type_filter": 4}, {"prefix", "other"}),
    ({"pattern_type_filter": 2}, {"literal", "prefix", "other", "group", "all", "cluster"}),
    ({"resource_name_filter": "abc"}, {"literal", "group"}),
    ({"resource_name_filter": "ab"}, {"prefix"}),
    ({"resource_name_filter": "ab", "pattern_type_filter": 3}, set()),
    ({"resource_name_filter": "ab", "pattern_type_filter": 4}, {"prefix"}),
    ({"resource_name_filter": "abc", "pattern_type_filter": 4}, set()),
    ({"resource_name_filter": "abc", "pattern_type_filter": 2}, {"literal", "prefix", "group", "all"}),
    ({"resource_name_filter": "abd", "pattern_type_filter": 2, "resource_type_filter": 2}, {"prefix", "all"}),
    ({"resource_name_filter": "*"}, {"all"}),
    ({"resource_name_filter": "*", "pattern_type_filter": 2}, {"all"}),
    ({"host_filter": "*"}, {"literal", "prefix", "other", "all", "cluster"}),
    ({"host_filter": HERE}, {"group"}),
    ({"operation": 3}, {"literal", "prefix"}),
    ({"operation": 2}, set()),
    ({"permission_type": 2}, {"other"}),
]


def chosen_by(stage: Stage, chosen: dict[str, Any]) -> dict[str, Any]:
    name = chosen.get("resource_name_filter")
    named = {} if name in (None, "*") else {"resource_name_filter": f"{stage.missing}{name}"}
    return chosen | named | {"principal_filter": f"User:{stage.user}"}


def test_filters_select_acls_to_describe(stage: Stage) -> None:
    named = stored(stage)
    for chosen, names in FILTERS:
        assert list_acls(stage.root, **chosen_by(stage, chosen)) == {named[name] for name in names}, chosen
    # Unlike in an ACL, this name stands for no other user.
    assert not list_acls(stage.root, principal_filter="User:*") & set(named.values())


@pytest.mark.parametrize(("chosen", "names"), FILTERS, ids=[str(chosen) for chosen, _ in FILTERS])
def test_filters_select_acls_to_delete(stage: Stage, chosen: dict[str, Any], names: set[str]) -> None:
    named = stored(stage)
    assert delete_acls(stage.root, chosen_by(stage, chosen), {"principal_filter": "User:no-such-user"}) == [
        (0, len(names)),
        (0, 0),
    ]
    rest = {acl for name, acl in named.items() if name not in names}
    mine = {"principal_filter": f"User:{stage.user}"}
    wait_until(lambda: list_acls(stage.root, **mine) == rest, "the ACLs are gone")


def test_acls_matched_by_two_filters_are_reported_by_both(stage: Stage) -> None:
    stored(stage)
    everything = {"principal_filter": f"User:{stage.user}"}
    assert delete_acls(stage.root, everything, everything | {"operation": 3}) == [(0, 6), (0, 2)]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_filter_with_unknown_values_matches_nothing(stage: Stage, field: str) -> None:
    stored(stage)
    assert list_acls(stage.root, **{field: 99}) == set()
    assert delete_acls(stage.root, {field: 99}) == [(42, 0)]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_unknown_enum_value_closes_the_connection(stage: Stage, field: str) -> None:
    filtered = EVERY_ACL | {field: 0}
    stage.root.post(m.DescribeAclsRequest(**filtered), 3)
    assert stage.root.is_closed_by_peer()
    stage.client.post(filled(m.DeleteAclsRequest, filters=[filtered]), 3)
    assert stage.client.is_closed_by_peer()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_creates_describes_and_deletes(stage: Stage, version: int) -> None:
    creation = acl(resource_name=stage.missing, resource_pattern_type=4, principal="User:a")
    created = stage.root.send(filled(m.CreateAclsRequest, creations=[creation]), version)
    assert created.results[0].error_code == 0
    wanted = EVERY_ACL | {"resource_name_filter": stage.missing}
    wait_until(lambda: stage.root.send(m.DescribeAclsRequest(**wanted), version).resources, "the ACL is known")
    [found] = stage.root.send(m.DescribeAclsRequest(**wanted), version).resources
    assert (found.pattern_type, found.resource_name, len(found.acls)) == (4, stage.missing, 1)
    form = m.DeleteAclsRequest.DeleteAclsFilter
    [result] = stage.root.send(m.DeleteAclsRequest(filters=[form(**wanted)]), version).filter_results
    [gone] = result.matching_acls
    wanted = {
        "error_code": 0,
        "pattern_type": 4,
        **{key: creation[key] for key in creation.keys() - {"resource_pattern_type"}},
    }
    assert {key: getattr(gone, key) for key in wanted} == wanted


# Requests that need no right


# Rule C.1/10.
@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_only_coordinators_write_to_internal_topics(stage: Stage, name: str) -> None:
    batch = record_batch([b"v"], NOBODY, -1, transactional=False)
    assert stage.root_session.produce(name, batch, version=9)[0] == 17
    assert stage.session.produce(name, batch, version=9)[0] == 29
    stage.grant(WRITE, ResourceType.TOPIC, name)
    assert stage.session.produce(name, batch, version=9)[0] == 17


# Rule G.1/17.
def test_transactional_records_without_an_id_are_refused(stage: Stage) -> None:
    stage.grant(WRITE, ResourceType.TOPIC, stage.topic)
    stage.grant(WRITE, ResourceType.TRANSACTIONAL_ID, stage.id)
    _, identity = stage.session.init()
    batch = record_batch([b"v"], identity, 0)
    stage.session.transactional_id = None
    assert stage.session.produce(stage.topic, batch, version=9)[0] == 53
    stage.session.transactional_id = stage.id
    assert stage.session.produce(stage.topic, batch, version=12)[0] == 0


def test_clients_cannot_write_control_batches(stage: Stage) -> None:
    plain = bytearray(record_batch([b"v"], NOBODY, -1, transactional=False))
    assert stage.root_session.produce(stage.topic, with_control_bit(plain), version=9)[0] == 87
    identity = stage.root_session.init_until_done()
    marker = with_control_bit(bytearray(record_batch([b"v"], identity, 0)))
    assert stage.root_session.produce(stage.topic, marker, version=12)[0] == 87
    assert stage.root_session.fetch(stage.topic, 0, isolation=0).high_watermark == 0


def with_control_bit(batch: bytearray) -> bytes:
    """Turn a batch into a control batch, and update its checksum."""
    batch[22] |= 1 << 5
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_acl_requests_without_an_authorizer_are_refused(client: RawClient) -> None:
    assert client.send(m.DescribeAclsRequest(**EVERY_ACL), 3).error_code == 54
    assert create_acls(client, acl()) == [54]
    assert delete_acls(client, {}) == [(54, 0)]
