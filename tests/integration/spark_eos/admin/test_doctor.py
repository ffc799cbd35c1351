"""`eos-kafka doctor` on healthy, locked-down and broken clusters."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedBroker, Error
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from spark_eos.admin import doctor as doctor_command
from spark_eos.admin import rights as roles
from spark_eos.admin.command import main
from spark_eos.admin.doctor_findings import CheckResult, Finding
from spark_eos.admin.doctor_topics import replicas
from spark_eos.admin.output import ExitCode
from spark_eos.admin.rights import Examination
from spark_eos.admin.trial_record import fate_of_record, what_it_means
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.transactions import init_producer_id
from spark_eos.options.client import ClientOptions
from tests.support.apache_kafka import free_ports
from tests.support.broker_core.served_apis import limit
from tests.support.listener_brokers import check_ipv6
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.security_scene import Scene, guarded, scene

__all__ = ["guarded", "scene"]
END_TXN = 26
QUICK = ("--timeout-seconds", "2")
SEVERAL = {"ok", "note", "warning", "problem", "skipped"}


def doctor(capsys: pytest.CaptureFixture[str], address: str, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command and return the exit code and the findings by their checks."""
    code = main(["doctor", "--bootstrap-server", address, "--output", "json", *words])
    found = json.loads(capsys.readouterr().out)
    assert {each["verdict"] for each in found} <= SEVERAL
    assert all(each.keys() == {"check", "verdict", "found", "remedy"} for each in found)
    return code, {each["check"]: each for each in found}


def verdicts(found: dict[str, dict[str, Any]], verdict: str) -> set[str]:
    return {check for check, each in found.items() if each["verdict"] == verdict}


def test_healthy_cluster_has_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"lines": 4}) as kafka:
        kafka.create_topic("decisions", 8, {"cleanup.policy": "compact", "segment.ms": "60000"})
        words = ("--topic", "lines", "--decision-topic", "decisions", "--role", "operator", "--role", "sink")
        code, found = doctor(capsys, kafka.bootstrap_servers, *words)
        assert code == ExitCode.DONE
        assert verdicts(found, "ok") == set(found)
        assert "aborted in" in found["trial transaction"]["found"]
        assert {check for check in found if check.startswith("rights")} == {
            f"rights: {role.replace('`', '')}" for role in roles.ROLES if not role.startswith("source")
        }
        assert kafka.transaction("eos-kafka.preflight").state == "CompleteAbort"
        assert [each.api for each in kafka.requests()].count("InitProducerId") == 1


def test_record_of_an_aborted_transaction_is_hidden_from_readers(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"trial": 1}) as kafka:
        words = ("--trial-topic", "trial")
        _, found = doctor(capsys, kafka.bootstrap_servers, *words)
        assert found["aborted records"]["verdict"] == "ok"
        assert len(kafka.records("trial")) == 1
        assert not kafka.records("trial", isolation="read_committed")
        _, found = doctor(capsys, kafka.bootstrap_servers, *words, "--read-only")
        assert found["aborted records"]["verdict"] == "skipped"
        assert "aborted records" not in doctor(capsys, kafka.bootstrap_servers)[1]
        with kafka.fault(api="Produce", action=Error("NOT_LEADER_OR_FOLLOWER")):
            _, found = doctor(capsys, kafka.bootstrap_servers, *words, "--timeout-seconds", "0.5")
        assert "not acknowledged within 500 ms" in found["aborted records"]["found"]
        assert "raise --timeout-seconds" in found["aborted records"]["remedy"]
        # Where the record cannot be reached, it is not known whether it is hidden.
        kafka.produce("trial", ["x"], transactional="earlier", end="open")
        _, found = doctor(capsys, kafka.bootstrap_servers, *words, "--timeout-seconds", "0.5")
        assert found["aborted records"]["verdict"] == "warning"
        assert "does not get to the record" in found["aborted records"]["found"]
        kafka.end_transaction("earlier")
        # As a service does that shows aborted records.
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            opened = init_producer_id(client, "seen", transaction_timeout_ms=10_000)
            shown = fate_of_record(client, opened, "trial", commit=True)
        assert what_it_means(shown).verdict is CheckResult.PROBLEM


def test_addresses_of_ipv6_are_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    check_ipv6()
    with EmbeddedBroker(host="::1") as kafka:
        address = kafka.bootstrap_servers
        _, found = doctor(capsys, address, *QUICK)
        assert found["broker 1"]["found"].startswith(f"responds at {address} and")
    code, found = doctor(capsys, address, *QUICK)
    assert code == ExitCode.PROBLEM_FOUND
    (refused,) = found.values()
    assert address.startswith("[::1]:")
    assert address in refused["found"]


def test_read_only_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"lines": 1}) as kafka:
        code, found = doctor(capsys, kafka.bootstrap_servers, "--topic", "lines", "--read-only")
        assert code == ExitCode.DONE
        assert found["trial transaction"]["found"] == "--read-only is given"
        assert "not checked: WRITE on the transactional id eos-kafka." in found["rights: sink, task"]["found"]
        assert {each.api for each in kafka.requests()} <= {
            "ApiVersions",
            "Metadata",
            "ListOffsets",
            "DescribeConfigs",
            "CreateTopics",
            "DescribeCluster",
            "FindCoordinator",
            "OffsetFetch",
            "DescribeGroups",
            "DescribeTransactions",
        }
        assert kafka.topics == {"lines": 1}


def test_missing_decision_topic_is_not_created(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"lines": 1}) as kafka:
        code, found = doctor(capsys, kafka.bootstrap_servers)
        assert code == ExitCode.DONE
        assert found["decision topic eos-kafka-decisions"]["found"] == "does not exist yet; the sink may create it"
        assert found["trial transaction"]["verdict"] == "skipped"
        assert found["data topics"]["verdict"] == "skipped"
        assert "not checked: WRITE on the topic TOPIC" in found["rights: sink, task"]["found"]
        assert kafka.topics == {"lines": 1}


def test_group_that_the_coordinator_does_not_know_has_no_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka returns no offsets; brokers of other projects return a code."""
    with EmbeddedBroker(topics={"lines": 1, "decisions": 1}) as kafka:
        words = ("--decision-topic", "decisions", *QUICK)
        with kafka.fault(api="OffsetFetch", action=Error("GROUP_ID_NOT_FOUND")):
            _, found = doctor(capsys, kafka.bootstrap_servers, *words)
        assert found["offsets of a group"]["verdict"] == "ok"
        with kafka.fault(api="OffsetFetch", action=Error("INVALID_GROUP_ID")):
            code, found = doctor(capsys, kafka.bootstrap_servers, *words)
        assert code == ExitCode.PROBLEM_FOUND
        assert "OffsetFetch for group 'eos-kafka.preflight' was refused" in found["group offsets"]["found"]


def test_decision_topic_is_tried_with_the_replicas_that_the_sink_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(config={"default.replication.factor": "3"}) as kafka:
        code, found = doctor(capsys, kafka.bootstrap_servers)
    assert code == ExitCode.PROBLEM_FOUND
    finding = found["decision topic eos-kafka-decisions"]
    assert "INVALID_REPLICATION_FACTOR" in finding["found"]
    assert "--replication-factor 1 " in finding["remedy"]


def examined(capsys: pytest.CaptureFixture[str], scene: Scene, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command as the principal of a scene."""
    names = ("--prefix", "p", "--topic", scene.world.topic, "--decision-topic", scene.world.decisions)
    return doctor(capsys, scene.kafka.sasl_address, *scene.config_words(), *names, *words)


@pytest.mark.parametrize("role", [role for role in roles.ROLES if role.startswith(("sink", "source"))])
def test_missing_rights_are_named_with_the_command_that_grants_them(
    scene: Scene, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    code, found = examined(capsys, scene)
    assert code == ExitCode.PROBLEM_FOUND
    finding = found[f"rights: {role}"]
    assert finding["verdict"] == "problem"
    for right in roles.ROLES[role]:
        assert f"{right.operation.name} on the {right.kind}" in finding["found"]
        assert f"--operation {right.operation.name}" in finding["remedy"]
    scene.grant(roles.ROLES[role])
    assert found.keys() >= {f"rights: {role}"}
    _, found = examined(capsys, scene)
    assert found[f"rights: {role}"]["verdict"] in ("ok", "note"), found
    assert "lacks the optional" in found[f"rights: {role}"]["found"] or role not in roles.OPTIONAL


def test_principal_with_all_rights_has_no_problem(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for rights in (*roles.ROLES.values(), *roles.OPTIONAL.values()):
        scene.grant(rights)
    code, found = examined(capsys, scene, "--role", "sink", "--role", "source", "--role", "operator")
    assert code == ExitCode.DONE
    assert verdicts(found, "ok") >= set(found) - {f"decision topic {scene.world.decisions}"}


def broken(settings: dict[str, str], **more: Any) -> EmbeddedBroker:
    return EmbeddedBroker(topics={"lines": 1}, config=settings, **more)


@pytest.mark.parametrize(
    ("settings", "policy", "words", "problem", "remedy"),
    [
        ({}, "delete", (), "decision topic eos-kafka-decisions", "Set it to compact"),
        ({}, "compact", ("--topic", "ordres"), "topic ordres", "Create it, or correct its name"),
        (
            {"transaction.version": "1", "transaction.partition.verification.enable": "false"},
            "compact",
            (),
            "verification of transactions",
            "set transaction.partition.verification.enable=true",
        ),
    ],
    ids=["topic that loses decisions", "misspelled topic", "no verification"],
)
def test_problem_has_a_remedy(
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str],
    policy: str,
    words: Sequence[str],
    problem: str,
    remedy: str,
) -> None:
    with broken(settings) as kafka:
        kafka.create_topic("eos-kafka-decisions", 8, {"cleanup.policy": policy})
        code, found = doctor(capsys, kafka.bootstrap_servers, *words)
    assert code == ExitCode.PROBLEM_FOUND
    assert verdicts(found, "problem") == {problem}
    assert remedy in found[problem]["remedy"]


@pytest.mark.parametrize("min_insync", ["1", "2", "3"])
@pytest.mark.parametrize("in_sync", [(1, 2), (1,), ()])
@pytest.mark.parametrize("leader", [1, -1])
def test_topic_that_takes_no_records_now_is_a_problem(min_insync: str, in_sync: tuple[int, ...], leader: int) -> None:
    whole = PartitionMetadata(0, 1, 0, 0, (1, 2), (1, 2))
    partitions = {1: PartitionMetadata(1, leader, 0, 0, (1, 2), in_sync), 0: whole}
    topic = TopicMetadata("orders", None, False, 0, partitions)
    found = replicas("orders", topic, {"min.insync.replicas": min_insync})
    # No more replicas are needed than there are.
    if leader < 0 or len(in_sync) < min(int(min_insync), 2):
        assert found is not None and found.verdict is CheckResult.PROBLEM
        assert "partitions 1 take no records" in found.found and "Start the brokers" in found.remedy
    elif len(in_sync) < 2:
        assert found is not None and found.verdict is CheckResult.WARNING
    else:
        assert found is None


def test_topic_whose_settings_are_not_known_lacks_a_leader_and_the_rest_is_counted() -> None:
    partitions = {each: PartitionMetadata(each, -1, 0, 0, (1, 2), (1,)) for each in range(12)}
    found = replicas("orders", TopicMetadata("orders", None, False, 0, partitions), {})
    assert found is not None
    assert found.found.endswith("8, 9 and 2 others take no records and no markers: no leader")


@pytest.mark.parametrize("topic", ["lines", "eos-kafka-decisions"])
def test_topic_without_a_leader_is_a_problem(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    with EmbeddedBroker(topics={"lines": 1}) as kafka:
        kafka.create_topic("eos-kafka-decisions", 8, {"cleanup.policy": "compact"})
        with kafka.without_leader((topic, 0)):
            code, found = doctor(capsys, kafka.bootstrap_servers, "--topic", "lines", *QUICK)
    assert code == ExitCode.PROBLEM_FOUND
    named = f"decision topic {topic}" if topic != "lines" else f"topic {topic}"
    assert "partitions 0 take no records" in found[named]["found"]


@pytest.mark.parametrize("topic", [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC])
def test_topic_of_the_coordinators_is_reported_only_if_it_takes_no_records(
    capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    """A transactional id or a query is served or not by chance: its coordinator has one partition of many."""
    with EmbeddedBroker(topics={"lines": 1}) as kafka:
        kafka.produce("lines", ["x"], transactional=True)
        assert doctor(capsys, kafka.bootstrap_servers)[0] == ExitCode.DONE
        _, found = doctor(capsys, kafka.bootstrap_servers)
        assert f"topic {topic}" not in found
        with kafka.without_leader((topic, 7)):
            code, found = doctor(capsys, kafka.bootstrap_servers, *QUICK)
    assert code == ExitCode.PROBLEM_FOUND
    assert "partitions 7 take no records and no markers" in found[f"topic {topic}"]["found"]


@pytest.mark.parametrize(("code", "is_refused"), [("NOT_CONTROLLER", False), ("TOPIC_AUTHORIZATION_FAILED", True)])
def test_right_to_create_is_advised_only_if_the_creation_is_refused(
    capsys: pytest.CaptureFixture[str], code: str, is_refused: bool
) -> None:
    with EmbeddedBroker() as kafka, kafka.fault(api="CreateTopics", action=Error(code)):
        _, found = doctor(capsys, kafka.bootstrap_servers, "--decision-topic", "decisions", *QUICK)
    assert found["decision topic decisions"]["verdict"] == "problem"
    assert code in found["decision topic decisions"]["found"]
    assert found["decision topic decisions"]["remedy"].startswith("Grant CREATE") == is_refused
    assert ("the sink cannot create it" in found["decision topic decisions"]["found"]) == is_refused


def test_decision_topic_is_described_once(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"decisions": 1}) as kafka:
        doctor(capsys, kafka.bootstrap_servers, "--decision-topic", "decisions", "--role", "operator", "--read-only")
        requests = [each for each in kafka.requests() if each.api == "Metadata" and "decisions" in each.topics]
    # The other one is for the rights.
    assert len(requests) == 2


def test_verification_that_is_off_is_reported_although_the_sink_does_not_need_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with broken({"transaction.version": "2", "transaction.partition.verification.enable": "false"}) as kafka:
        code, found = doctor(capsys, kafka.bootstrap_servers)
    assert code == ExitCode.DONE
    finding = found["verification of transactions"]
    assert finding["verdict"] == "warning"
    assert "broker 1 has transaction.partition.verification.enable=false" in finding["found"]
    assert "set transaction.partition.verification.enable=true" in finding["remedy"].lower()


@pytest.mark.parametrize(
    ("version", "newest_end_txn", "advice"),
    [
        (2, 4, "Upgrade the proxy or service"),
        (1, 4, "without a proxy that limits versions, and then"),
        (1, 5, "kafka-features.sh upgrade --feature transaction.version=2"),
    ],
)
def test_level_of_transactions_gets_advice_that_can_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: int, newest_end_txn: int, advice: str
) -> None:
    """A proxy that limits versions passes on the features of the brokers behind it."""
    with EmbeddedBroker(transaction_version=version) as kafka:
        limit(monkeypatch, END_TXN, newest_end_txn)
        _, found = doctor(capsys, kafka.bootstrap_servers)
    finding = found["transaction protocol"]
    assert finding["verdict"] == "note"
    assert finding["found"].startswith(f"transaction.version {version}")
    assert advice in finding["remedy"]


@pytest.mark.parametrize(
    ("retention_ms", "words", "verdict", "text"),
    [
        ("-1", (), "ok", "keeps all records"),
        ("60000", (), "problem", "decisions can be deleted"),
        ("60000", ("--allow-decision-retention",), "warning", "deletes decisions (retention.ms=60000"),
    ],
)
def test_decision_topic_without_compaction_is_judged_as_the_sink_does(
    capsys: pytest.CaptureFixture[str], retention_ms: str, words: Sequence[str], verdict: str, text: str
) -> None:
    with broken({}) as kafka:
        kafka.create_topic("eos-kafka-decisions", 8, {"cleanup.policy": "delete", "retention.ms": retention_ms})
        _, found = doctor(capsys, kafka.bootstrap_servers, *words)
    finding = found["decision topic eos-kafka-decisions"]
    assert (finding["verdict"], text in finding["found"]) == (verdict, True), finding
    assert verdict == "ok" or "retention.ms" in finding["remedy"]


def test_address_without_broker_is_a_warning_beside_one_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    (free,) = free_ports(1)
    with broken({}) as kafka:
        code, found = doctor(capsys, f"{kafka.bootstrap_servers},127.0.0.1:{free}", *QUICK)
    assert code == ExitCode.DONE
    assert verdicts(found, "warning") == {f"connection to 127.0.0.1:{free}"}


def test_cluster_that_cannot_be_reached_ends_the_examination(capsys: pytest.CaptureFixture[str]) -> None:
    (free,) = free_ports(1)
    code, found = doctor(capsys, f"127.0.0.1:{free}", *QUICK)
    assert code == ExitCode.PROBLEM_FOUND
    assert set(found) == {f"connection to 127.0.0.1:{free}"}


def test_broker_that_is_offline_is_found_at_its_advertised_address(capsys: pytest.CaptureFixture[str]) -> None:
    """As behind a listener that only machines of the cluster's own network can reach."""
    free, port = free_ports(2)
    with broken({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{free}"}, port=port):
        code, found = doctor(capsys, f"127.0.0.1:{port}", *QUICK)
    assert code == ExitCode.PROBLEM_FOUND
    assert found["broker 1"]["verdict"] == "problem"
    assert f"no response at its advertised address 127.0.0.1:{free}" in found["broker 1"]["found"]
    assert "advertised.listeners" in found["broker 1"]["remedy"]


def test_wrong_password_is_reported_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} username="alice" password="misplaced";\n'
    )
    with EmbeddedBroker(listeners={"SASL": "SASL_PLAINTEXT"}, users={"alice": unique("secret")}) as kafka:
        code, found = doctor(capsys, kafka.bootstrap_servers, "--command-config", str(config))
        check = f"connection to {kafka.bootstrap_servers}"
    assert code == ExitCode.PROBLEM_FOUND
    assert set(found) == {check}
    assert "misplaced" not in str(found)
    assert "sasl" in found[check]["remedy"]


def test_table_shows_each_finding_as_soon_as_it_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def findings(_: Examination) -> Iterator[Finding]:
        yield Finding("topic nope", CheckResult.PROBLEM, "does not exist", "Create it")
        assert capsys.readouterr().out == "problem  topic nope: does not exist\n         -> Create it\n"
        yield Finding("broker 1", CheckResult.OK, "responds")

    monkeypatch.setattr(doctor_command, "examine", findings)
    assert main(["doctor", "--bootstrap-server", "127.0.0.1:1"]) == ExitCode.PROBLEM_FOUND
    assert "checks: 1 with a problem" in capsys.readouterr().out


def test_table_shows_each_remedy_below_its_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with broken({}) as kafka:
        address = kafka.bootstrap_servers
        main(["doctor", "--bootstrap-server", address, "--topic", "nope"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok       connection to {address}: connected with PLAINTEXT"
    problem = next(place for place, line in enumerate(lines) if line.startswith("problem  topic nope: "))
    assert lines[problem + 1] == "         -> Create it, or correct its name"
    assert lines[-1].endswith("checks: 1 with a problem, 0 with a warning.")


def test_csv_has_a_row_for_each_finding_and_colors_are_for_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        words = ["doctor", "--bootstrap-server", kafka.bootstrap_servers, "--read-only", "--color", "always"]
        code = main([*words, "--output", "csv"])
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
        assert {*rows[0]} == {"check", "verdict", "found", "remedy"}
        assert ("problem" in {row["verdict"] for row in rows}) == (code == ExitCode.PROBLEM_FOUND)
        assert main(words) == code
        shown = capsys.readouterr().out
        assert "\x1b[32mok     \x1b[0m  " in shown
        assert all(row["check"] in shown for row in rows)


def test_clock_difference_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(clock="virtual") as kafka:
        kafka.create_topic("eos-kafka-decisions", 8, {"cleanup.policy": "compact", "segment.ms": "60000"})
        kafka.clock.advance(seconds=60)
        _, found = doctor(capsys, kafka.bootstrap_servers)
    assert found["clock difference"]["verdict"] == "warning"
    assert "ahead of this machine's" in found["clock difference"]["found"]
