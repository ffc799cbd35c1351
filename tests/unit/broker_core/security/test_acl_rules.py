"""ACLs: deny before allow, by name, prefix or `*`; implied rights; super users."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.config import STANDARD_AUTHORIZER, BrokerConfig
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.security.acls import (
    ANY_USER,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    new_acl,
    printed_host,
)
from broker_core.security.authorizer import Acls, Authorizer, authorizer_for
from broker_core.security.principals import user

ALICE, HOST = user("alice"), "10.1.2.3"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    operation=READ, name="orders", *, kind=TOPIC, pattern=LITERAL, who="User:alice", host=WILDCARD, permission=ALLOW
):
    return Acl(ResourcePattern(kind, pattern, name), who, host, operation, permission)


def authorizer(*acls, super_users="", allows_by_default=False):
    known = Acls()
    for each in acls:
        known.add(each)
    return Authorizer(known, super_users=super_users, allows_by_default=allows_by_default)


def allowed(rules, operation=READ, name="orders", *, who=ALICE, host=HOST, kind=TOPIC):
    return rules.allows(who, host, operation, kind, name)


def test_super_user_overrides_denials():
    rules = authorizer(acl(ALL, WILDCARD, permission=DENY, who=ANY_USER), super_users=" User:bob ; User:alice;")
    assert allowed(rules)
    assert not allowed(rules, who=user("carol"))


@pytest.mark.parametrize("text", ["alice", "User:alice,bob;carol"])
def test_super_user_without_a_principal_type_is_refused_with_a_remedy(text):
    with pytest.raises(ConfigError, match="write User:"):
        authorizer(super_users=text)


def test_removed_acl_allows_nothing_and_its_prefix_is_dropped():
    known, rule, other = Acls(), acl(name="ord", pattern=PREFIXED), acl(WRITE, name="ord", pattern=PREFIXED)
    rules = Authorizer(known, super_users="", allows_by_default=False)
    known.add(rule)
    known.add(rule)
    known.add(other)
    known.remove(rule)
    assert (allowed(rules), allowed(rules, WRITE), list(known)) == (False, True, [other])
    known.remove(other)
    assert (allowed(rules, WRITE), list(known), rule in known) == (False, [], False)
    known.add(rule)
    assert allowed(rules)
    known.add(acl(name="gro", pattern=PREFIXED))
    known.remove(rule)
    assert allowed(rules, name="groups")


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("test", "test"),
    ],
)
def test_address_is_formatted_as_in_java(address, printed):
    assert printed_host(address) == printed
    assert allowed(authorizer(acl(host=printed)), host=address)


def test_network_matches_addresses_of_its_own_family():
    assert allowed(authorizer(acl(host="2001:db8::/32")), host="2001:db8::7")
    assert not allowed(authorizer(acl(host="2001:db8::/32")), host="2001:db9::7")
    assert not allowed(authorizer(acl(host="0.0.0.0/0")), host="::1")
    assert not allowed(authorizer(acl(host="0.0.0.0/0")), host="test")


def test_acls_are_checked_only_with_an_authorizer():
    assert authorizer_for(BrokerConfig(), Acls()) is None
    config = BrokerConfig().override({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"})
    rules = authorizer_for(config, Acls())
    assert rules is not None
    assert (allowed(rules, who=user("root")), allowed(rules)) == (True, False)
    everybody = authorizer_for(config.override({"allow.everyone.if.no.acl.found": "true"}), Acls())
    assert everybody is not None
    assert allowed(everybody)
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        BrokerConfig().override({"authorizer.class.name": "my.Authorizer"})


# Rights on any resource


def on_any(rules, operation=WRITE, kind=TOPIC, who=ALICE):
    return rules.allows_on_any(who, HOST, operation, kind)


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        (authorizer(), False),
        (authorizer(acl(WRITE)), True),
        (authorizer(acl(ALL)), True),
        (authorizer(acl(READ)), False),
        (authorizer(acl(WRITE, kind=GROUP)), False),
        (authorizer(acl(WRITE, host="1.2.3.4")), False),
        (authorizer(acl(WRITE, host="10.0.0.0/8")), True),
        (authorizer(acl(WRITE), acl(WRITE, permission=DENY)), False),
        (authorizer(acl(WRITE), acl(WRITE, "or", pattern=PREFIXED, permission=DENY)), False),
        (authorizer(acl(WRITE), acl(WRITE, "x", pattern=PREFIXED, permission=DENY)), True),
        (authorizer(acl(WRITE), acl(WRITE, WILDCARD, permission=DENY)), False),
        (authorizer(acl(WRITE, "or", pattern=PREFIXED), acl(WRITE, "orders", permission=DENY)), True),
        (authorizer(acl(WRITE, "or", pattern=PREFIXED), acl(WRITE, "o", pattern=PREFIXED, permission=DENY)), False),
        (authorizer(acl(WRITE, "or", pattern=PREFIXED), acl(WRITE, "or", pattern=PREFIXED, permission=DENY)), False),
        (authorizer(acl(WRITE, WILDCARD), acl(WRITE, "o", pattern=PREFIXED, permission=DENY)), True),
        (authorizer(allows_by_default=True), True),
        (authorizer(super_users="User:alice"), True),
    ],
)
def test_write_to_any_topic_is_evaluated(rules, is_allowed):
    assert on_any(rules) is is_allowed


# Comparison with a model that checks every ACL

NAMES = ["a", "ab", "abc", "b", WILDCARD]
RULES = st.builds(
    acl,
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from(NAMES),
    kind=st.sampled_from([TOPIC, GROUP]),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    who=st.sampled_from(["User:alice", "User:bob", ANY_USER]),
    host=st.sampled_from([WILDCARD, HOST, "10.9.9.9"]),
    permission=st.sampled_from([ALLOW, DENY]),
)


def model(rules, operation, name, allows_by_default):
    implied_by = {READ, WRITE, DESCRIBE} if operation is DESCRIBE else {operation}
    about = [
        rule
        for rule in rules
        if rule.pattern.resource_type is TOPIC
        and (
            name.startswith(rule.pattern.name)
            if rule.pattern.pattern_type is PREFIXED
            else rule.pattern.name in (name, WILDCARD)
        )
    ]
    mine = [rule for rule in about if rule.principal in ("User:alice", ANY_USER) and rule.host in (WILDCARD, HOST)]
    if any(rule.permission is DENY and rule.operation in (operation, ALL) for rule in mine):
        return False
    if any(rule.permission is ALLOW and rule.operation in {ALL, *implied_by} for rule in mine):
        return True
    return allows_by_default and not about


@given(
    st.lists(RULES, max_size=8),
    st.sets(st.integers(0, 7)),
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from(NAMES),
    st.booleans(),
)
@example(
    [acl(name="a", pattern=PREFIXED), acl(name="abc", pattern=PREFIXED, permission=DENY)], set(), READ, "abc", False
)
def test_decisions_match_a_model(rules, removed, operation, name, allows_by_default):
    known = Acls()
    for rule in rules:
        known.add(rule)
    gone = {rules[index] for index in removed if index < len(rules)}
    for rule in gone:
        known.remove(rule)
    rest = [rule for rule in rules if rule not in gone]
    assert sorted(known) == sorted(set(rest))
    decides = Authorizer(known, super_users="", allows_by_default=allows_by_default)
    assert allowed(decides, operation, name) is model(rest, operation, name, allows_by_default)


# ACLs that can be created, and ACLs that a filter matches


def created(kind=2, pattern=3, name="t", who="User:a", host="*", operation=3, permission=3):
    return new_acl(kind, pattern, name, who, host, operation, permission)


def test_acl_fields_are_parsed_from_enum_values():
    assert created() == acl(READ, "t", who="User:a")
    assert created(4, name=CLUSTER_NAME).pattern.resource_type is ResourceType.CLUSTER
    assert created(host="10.0.0.0/8").host == "10.0.0.0/8"
    # Kafka accepts any text as a host, even if no client can have it.
    assert created(host="localhost").host == "localhost"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kind": 1}, "resourceType"),
        ({"kind": 99}, "resourceType"),
        ({"pattern": 1}, "patternType"),
        ({"pattern": 2}, "patternType"),
        ({"pattern": 77}, "patternType"),
        ({"operation": 1}, "operation"),
        ({"operation": 55}, "operation"),
        ({"permission": 1}, "permissionType"),
        ({"permission": 9}, "permissionType"),
        ({"name": ""}, "empty resource name"),
        ({"kind": 4, "name": "mine"}, CLUSTER_NAME),
        ({"who": "alice"}, "Could not parse principal"),
        ({"host": ""}, "Host"),
        ({"host": "10.0.0.0/33"}, "CIDR"),
        ({"host": "a/b"}, "CIDR"),
        ({"host": "/8"}, "CIDR"),
        ({"host": "10.0.0.0/255.0.0.0"}, "CIDR"),
    ],
)
def test_invalid_acl_is_refused_with_a_reason(wrong, says):
    with pytest.raises(KafkaError, match=says) as caught:
        created(**wrong)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_decision_cost_is_independent_of_acls_of_other_principals(monkeypatch):
    looked_at = []
    covers = Acl.covers
    monkeypatch.setattr(Acl, "covers", lambda self, operation: looked_at.append(self) or covers(self, operation))
    crowd = [
        acl(name=name, who=f"User:{number}", pattern=pattern)
        for number in range(300)
        for name, pattern in (("orders", LITERAL), ("ord", PREFIXED), ("*", LITERAL))
    ]
    others = [acl(name=f"{number}", pattern=PREFIXED) for number in range(300)]
    mine = [acl(), acl(name="or", pattern=PREFIXED), acl(name=WILDCARD, who=ANY_USER)]
    assert allowed(authorizer(*crowd, *others, *mine))
    assert set(looked_at) == set(mine)
