"""The documented table of rights: each role works with exactly these rights, and fails without any one of them."""

import logging
from pathlib import Path

import pytest
from kafka.admin import ACLResourcePatternType

from broker_core.types import TopicPartition
from spark_eos.admin import rights as roles
from spark_eos.admin.command import ExitCode
from spark_eos.client.allowed_operations import ACLOperation
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthorizationError, EosKafkaError
from spark_eos.options.client import client_options
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.source.driver_side import GroupCommits
from spark_eos.transactions.judge import name_blocker
from tests.support.spark_eos import security_roles as page
from tests.support.spark_eos.client_world import make_topic, unique
from tests.support.spark_eos.security_scene import (
    RUN,
    WORK,
    CommandFailed,
    Scene,
    guarded,
    scene,
    source_driver,
    task_that_looks,
)

__all__ = ["guarded", "scene"]
PAGE = Path(__file__).parents[4] / "docs" / "security" / "access-control.md"
LACKING = [(role, number) for role, rights in roles.ROLES.items() for number in range(len(rights))]
# Roles to which a missing right is no error: the response is shorter, and the output names the right.
SAID_ONLY = {"`transactions list`"}


def test_every_role_has_a_scenario() -> None:
    assert WORK.keys() == roles.ROLES.keys()
    assert roles.OPTIONAL.keys() <= roles.ROLES.keys()


def test_documented_rights_match_the_tested_roles() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(page.BEGIN) == 1, f"{PAGE} has no table of rights"
    shown = text.partition(page.BEGIN)[2].partition(page.END)[0]
    assert [line for line in shown.splitlines() if line.startswith("|")] == page.table().splitlines()


@pytest.mark.parametrize("role", roles.ROLES)
def test_role_works_with_exactly_its_rights(scene: Scene, role: str) -> None:
    scene.grant(roles.ROLES[role])
    WORK[role](scene)


@pytest.mark.parametrize(("role", "number"), LACKING)
def test_missing_right_is_reported_with_the_grant_to_make(
    scene: Scene, capsys: pytest.CaptureFixture[str], role: str, number: int
) -> None:
    rights = roles.ROLES[role]
    lacking = rights[number]
    scene.grant([right for right in rights if right is not lacking])
    if role in SAID_ONLY:
        WORK[role](scene)
        said = capsys.readouterr().err
    else:
        with pytest.raises((EosKafkaError, CommandFailed)) as raised:
            WORK[role](scene)
        said = capsys.readouterr().err if raised.type is CommandFailed else str(raised.value)
    granted = said.partition("Grant ")[2]
    assert lacking.operation.name in granted, said
    assert lacking.kind in granted, said


def optional(role: str, number: int) -> roles.Right:
    return roles.OPTIONAL[role][number]


def test_task_looks_up_its_transaction_with_optional_rights(scene: Scene) -> None:
    role = "sink, task"
    scene.grant([*roles.ROLES[role], optional(role, 0)])
    with pytest.raises(EosKafkaError, match="Grant the principal DESCRIBE and READ on the topic"):
        task_that_looks(scene)
    scene.grant([optional(role, 1)])
    scene.world.query = unique("query")
    scene.world.topic = make_topic(scene.world.client)
    scene.names = {**scene.names, roles.DATA: scene.world.topic}
    scene.grant([*roles.ROLES[role], *roles.OPTIONAL[role]])
    task_that_looks(scene)


def test_driver_reports_checks_it_could_not_make(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    role = "sink, driver"
    scene.grant(roles.ROLES[role])
    with caplog.at_level(logging.INFO, "spark_eos.sink"), KafkaClient(scene.sink_options().client) as client:
        assert check_cluster(client, scene.sink_options()).transaction_timeout_ms == 60_000
        assert "so its cleanup.policy is not checked" in caplog.text
        assert "Grant DESCRIBE_CONFIGS on the topic" in caplog.text
        assert "cannot read transaction.max.timeout.ms, using 60000 ms" in caplog.text
        assert "Grant DESCRIBE_CONFIGS on the cluster" in caplog.text
        caplog.clear()
        scene.grant([optional(role, 1), optional(role, 2)])
        assert check_cluster(client, scene.sink_options()).transaction_timeout_ms == 900_000
    assert "cannot read" not in caplog.text


def test_missing_right_to_decide_is_found_before_the_rows(scene: Scene) -> None:
    role = "sink, driver"
    decides = next(right for right in roles.ROLES[role] if right.purpose == "decisions")
    scene.grant([right for right in roles.ROLES[role] if right is not decides])
    with KafkaClient(scene.sink_options().client) as client:
        with pytest.raises(
            AuthorizationError, match=r"not allowed to write to the decision topic.*Grant WRITE on the topic"
        ):
            check_cluster(client, scene.sink_options())
        scene.grant([decides])
        check_cluster(client, scene.sink_options())


def test_driver_creates_the_decision_topic_or_reports_how(scene: Scene) -> None:
    role = "sink, driver"
    scene.names = {**scene.names, roles.DECISIONS: unique("decisions")}
    options = scene.sink_options(decisionTopic=scene.names[roles.DECISIONS])
    scene.grant(roles.ROLES[role])
    with KafkaClient(options.client) as client:
        with pytest.raises(EosKafkaError, match=r"cannot be created.*Grant CREATE on the topic"):
            check_cluster(client, options)
        scene.grant([optional(role, 0)])
        check_cluster(client, options)
        assert client.require_topics([options.decision_topic])[options.decision_topic].partition_count == 8


def test_progress_is_committed_to_a_group_with_the_right(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    role = "source, driver"
    more = {"commitOffsetsToGroup": "true", "kafka.group.id": scene.group}
    scene.grant([*roles.ROLES[role], optional(role, 0)])
    with caplog.at_level(logging.INFO, "spark_eos.source"):
        source_driver(scene, **more)
        assert "could not be committed to group" in caplog.text
        assert "Grant READ and DESCRIBE on the group" in caplog.text
    with KafkaClient(client_options(scene.options())) as client:
        scene.grant([optional(role, 2)])
        commits, place = GroupCommits(client, scene.group), TopicPartition(scene.world.topic, 0)
        caplog.clear()
        with caplog.at_level(logging.INFO, "spark_eos.source"):
            commits.commit({place: 1})
    assert "are committed to group" in caplog.text


def test_live_transaction_without_describe_right_is_not_called_hanging(scene: Scene) -> None:
    role = "source, driver"
    scene.grant([*roles.ROLES[role], optional(role, 0)])
    scene.world.prepare(RUN)
    place = TopicPartition(scene.world.topic, 0)
    with KafkaClient(client_options(scene.options())) as client:
        hidden = name_blocker(client, place)
        assert "hidden from the principal. Grant the principal DESCRIBE on all transactional ids" in hidden
        assert "it hangs" not in hidden
        # Not even for one who may see the ids with some prefix.
        scene.stage.grant(ACLOperation.DESCRIBE, roles.ID, "eos-kafka", pattern=ACLResourcePatternType.PREFIXED)
        assert name_blocker(client, place) == hidden
        scene.grant([optional(role, 1)])
        assert f"the transaction of '{scene.names[roles.ONE_ID]}'" in name_blocker(client, place)


def test_search_of_all_topics_says_that_some_may_be_hidden(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise a check in cron would find nothing and end with 0."""
    scene.grant(roles.ROLES["`transactions find-hanging`"])
    assert scene.command("transactions", "find-hanging", "--all-topics") == ExitCode.DONE
    assert "Only topics that the principal may DESCRIBE were searched." in capsys.readouterr().err
    scene.stage.grant(ACLOperation.READ, roles.TOPIC, "*")
    scene.command("transactions", "find-hanging", "--all-topics")
    assert "Only topics" not in capsys.readouterr().err


def test_list_of_decisions_has_those_whose_transactions_are_hidden(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.grant([right for right in roles.ROLES["`decisions list`, `show`"] if right.resource_type is roles.TOPIC])
    names = []
    for _ in range(2):
        first = scene.world.prepare(RUN)
        log = scene.world.log()
        log.decide(scene.world.decision(first), log.take_over())
        names.append(scene.world.query)
        scene.world.query = unique("query")
    scene.stage.grant(ACLOperation.DESCRIBE, roles.ID, f"p.{names[1]}.", pattern=ACLResourcePatternType.PREFIXED)
    words = ("decisions", "list", "--decision-topic", scene.world.decisions)
    assert scene.command(*words) == ExitCode.FAILED
    shown = capsys.readouterr()
    states = {row.split()[1]: row.split("  ")[-1].strip() for row in shown.out.splitlines()[1:]}
    assert states == {names[0]: "not permitted", names[1]: "1 open"}
    assert shown.err.startswith("1 decision without the state of transactions: ") and "Grant" in shown.err
    assert scene.command(*words, "--query", names[1]) == ExitCode.DONE


def test_timeline_names_producers_it_may_describe(scene: Scene) -> None:
    scene.grant(roles.ROLES["`timeline`"])
    WORK["`timeline`"](scene)
    page = scene.folder / "timeline.html"
    assert "Grant the principal DESCRIBE on all transactional ids" in page.read_text(encoding="utf-8")
    scene.grant(roles.OPTIONAL["`timeline`"])
    scene.world.query = unique("query")
    scene.command("timeline", scene.world.topic, "--out", str(page))
    assert scene.names[roles.ONE_ID] in page.read_text(encoding="utf-8")


def test_watch_shows_what_it_may_read(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    topic = scene.world.topic
    scene.grant(roles.ROLES["`watch`"])
    WORK["`watch`"](scene)
    shown = capsys.readouterr().out
    assert f"Not checked: {topic}-0 (TOPIC_AUTHORIZATION_FAILED (29))" in shown
    assert f"{topic}-0: last stable offset 0, lag 1" in shown
    for right, verdict in zip(roles.OPTIONAL["`watch`"], ("unknown", "live"), strict=True):
        scene.grant([right])
        scene.command("watch", "--topic", topic, "--count", "1")
        shown = capsys.readouterr().out
        assert shown.endswith(f": {verdict}\n"), shown
        assert ("Grant the principal DESCRIBE on all transactional ids" in shown) == (verdict == "unknown")
