"""`kafka_version` of the embedded broker, the command and the pytest plugin."""

import json

import pytest
from kafka.protocol.metadata import MetadataRequest

from broker_core import ConfigError, EmbeddedBroker, ErrorCode
from broker_core.__main__ import main
from broker_core.broker.apis import SERVED, served_apis
from broker_core.coordinator.groups.offsets.store import read_offset_value
from broker_core.wire.messages import ShareGroupHeartbeatRequest
from tests.support.broker_core.broker_command import running
from tests.support.group_session import GroupSession
from tests.support.messages import SAFE, UPGRADE
from tests.support.raw_client import RawClient
from tests.support.recorded_api_versions import FILE, PATCHES, advertised
from tests.support.version_answers import DELETE, MIN_INSYNC_REPLICAS, SET, alter, settings_of, update

pytest_plugins = ["pytester"]

DEADLINE_S = 30
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
VERSIONS = [patch.rpartition(".")[0] for patch in PATCHES]


def levels_of(answer):
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_every_version_is_recorded():
    assert list(RECORDED) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_serves_its_apis_and_features(version):
    with EmbeddedBroker(kafka_version=version, topics={"in": 1}) as kafka:
        found = advertised(kafka.bootstrap_servers)
        assert found.api_keys
        for api in found.api_keys:
            low, high = RECORDED[version]["apis"][str(api.api_key)]
            assert low <= max(api.min_version, SERVED[api.api_key].min_version)
            assert api.max_version == min(high, SERVED[api.api_key].max_version)
        assert len(found.api_keys) == len(set(RECORDED[version]["apis"]) & {str(key) for key in SERVED})
        features = RECORDED[version]["features"]
        # Older clients do not understand a lowest level of 0.
        assert {each.name: [each.min_version, each.max_version] for each in found.supported_features} == {
            name: [low, high] for name, (low, high, _) in features.items() if low
        }
        assert levels_of(found) == {name: level for name, (_, _, level) in features.items() if level}
        # The test's own records and transactions use the newest protocol of the version.
        kafka.produce("in", ["plain"])
        kafka.produce("in", ["in a transaction"], transactional=True)
        assert kafka.records("in", isolation="read_committed").values == [b"plain", b"in a transaction"]
        levels = kafka._call(lambda cluster: dict(cluster.metadata.features))
        assert (levels["transaction.version"], levels["group.version"]) == ((2, 1) if version >= "4" else (0, 0))


# Rule B.3/3.
@pytest.mark.parametrize(("version", "recorded"), [("3.9", "0003"), ("4.0", "0003"), ("4.1", "0004"), ("", "0004")])
def test_a_committed_offset_is_recorded_as_the_version_does(version, recorded):
    with EmbeddedBroker(kafka_version=version or None, topics={"in": 1}) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            assert GroupSession(client, "g", "in").commit("", -1, version=8) == {0}
        [record] = [each for each in kafka.records("__consumer_offsets") if each.key[:2] == b"\0\1"]
        assert record.value[:2].hex() == recorded
        assert read_offset_value(record.value).offset == 5


def test_requests_of_a_newer_version_are_refused():
    with EmbeddedBroker(kafka_version="3.9.1") as kafka:
        answer = advertised(kafka.bootstrap_servers, 4)
        assert max(api.max_version for api in answer.api_keys if api.api_key == MetadataRequest.API_KEY) == 12
        with RawClient(kafka.bootstrap_servers) as client:
            client.post(MetadataRequest(topics=[]), 13)
            assert client.is_closed_by_peer()


# Rule J.3/8.
def test_before_4_0_features_are_updated_one_by_one():
    with EmbeddedBroker(kafka_version="3.9") as kafka, RawClient(kafka.bootstrap_servers) as client:
        code, message, results = update(client, 1, ("transaction.version", 1, UPGRADE), ("metadata.version", 20, SAFE))
        assert (code, message) == (ErrorCode.NONE, "")
        reason = "Local controller 1 does not support this feature."
        assert results == [
            ("metadata.version", ErrorCode.NONE, None),
            (
                "transaction.version",
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version 1 for feature transaction.version. {reason}",
            ),
        ]
        assert levels_of(advertised(kafka.bootstrap_servers)) == {"kraft.version": 1, "metadata.version": 20}


# Rule J.3/10.
@pytest.mark.parametrize("version", VERSIONS)
def test_only_a_cluster_with_eligible_leaders_owns_the_replicas_in_sync(version):
    owns = version >= "4.1"
    refused = ErrorCode.INVALID_CONFIG if owns else ErrorCode.NONE
    with EmbeddedBroker(kafka_version=version) as kafka, RawClient(kafka.bootstrap_servers) as client:
        assert settings_of(client, "") == ([(MIN_INSYNC_REPLICAS, "1", 3)] if owns else [])
        assert [alter(client, name, how)[0] for name, how in (("1", SET), ("1", DELETE), ("", DELETE))] == [refused] * 3


# Rule J.3/9.
@pytest.mark.parametrize(
    ("version", "refused"), [("3.9", [16, 14]), ("4.0", [22, 7]), ("4.1", [22]), ("4.3", [29]), ("4.4", [32, 31])]
)
def test_metadata_is_not_read_at_a_level_before_a_change(version, refused):
    with EmbeddedBroker(kafka_version=version) as kafka, RawClient(kafka.bootstrap_servers) as client:
        for level in refused:
            code, message, results = update(client, 1, ("metadata.version", level, SAFE), validate_only=True)
            assert {code, *(each[1] for each in results)} >= {ErrorCode.INVALID_UPDATE_VERSION}
            assert "it might delete metadata information" in "".join([message, *(each[2] for each in results)])
        if refused[0] + 1 < RECORDED[version]["features"]["metadata.version"][1]:
            code, _, results = update(client, 1, ("metadata.version", refused[0] + 1, SAFE))
            assert {code, *(each[1] for each in results)} == {ErrorCode.NONE}
            assert levels_of(advertised(kafka.bootstrap_servers))["metadata.version"] == refused[0] + 1


def test_a_setting_lowers_the_first_level_of_a_feature():
    for version, settings, levels in (
        ("4.0", {"transaction.version": "1", "group.version": "0"}, (1, 0, 0)),
        ("4.3", {}, (2, 1, 1)),
        ("4.4", {"share.version": "1"}, (2, 1, 1)),
        ("3.9", {"transaction.version": "2", "group.version": "1"}, (0, 0, 0)),
    ):
        with EmbeddedBroker(kafka_version=version, config=settings) as kafka:
            found = kafka._call(lambda cluster: dict(cluster.metadata.features))
            assert (found["transaction.version"], found["group.version"], found["share.version"]) == levels


# Rule J.3/7.
def test_a_newer_version_keeps_the_levels_of_a_folder(tmp_path):
    with EmbeddedBroker(kafka_version="3.9", data_dir=tmp_path, topics={"in": 1}) as kafka:
        kafka.produce("in", ["old"])
    for version in ("3.9", "4.0", "4.4", None):
        with EmbeddedBroker(kafka_version=version, data_dir=tmp_path) as kafka:
            found = advertised(kafka.bootstrap_servers)
            assert levels_of(found) == {"kraft.version": 1, "metadata.version": 21}
            assert kafka.records("in").values == [b"old"]
            assert {each.name for each in found.supported_features} == {"metadata.version"}
    with EmbeddedBroker(data_dir=tmp_path) as kafka, RawClient(kafka.bootstrap_servers) as client:
        wanted = (("metadata.version", 33, UPGRADE), ("transaction.version", 2, UPGRADE), ("share.version", 2, UPGRADE))
        assert update(client, 2, *wanted) == (ErrorCode.NONE, None, [])
    with EmbeddedBroker(kafka_version="4.4", data_dir=tmp_path) as kafka:
        assert levels_of(advertised(kafka.bootstrap_servers)) == {
            "kraft.version": 1,
            "metadata.version": 33,
            "share.version": 2,
            "transaction.version": 2,
        }


# Rule J.3/7.
def test_an_older_version_does_not_open_a_folder(tmp_path, capsys):
    with EmbeddedBroker(kafka_version="4.0", data_dir=tmp_path, topics={"in": 1}) as kafka:
        kafka.produce("in", ["kept"])
    message = (
        "Kafka 3.9 cannot open a cluster with group.version 1 (unknown), metadata.version 25 (supported: 1 to 21), "
        "transaction.version 2 (unknown): open it with kafka.version=4.0 or later, or begin with new data"
    )
    with pytest.raises(ConfigError) as refused:
        EmbeddedBroker(kafka_version="3.9", data_dir=tmp_path).start()
    assert str(refused.value) == message
    with pytest.raises(ConfigError, match="cannot open"):
        EmbeddedBroker(kafka_version="3.9", copy_of=tmp_path).start()
    assert main(["--port", "0", "--data-dir", str(tmp_path), "--kafka-version", "3.9"]) != 0
    assert message in capsys.readouterr().err
    with EmbeddedBroker(kafka_version="4.1", data_dir=tmp_path) as kafka:
        assert kafka.records("in").values == [b"kept"]


def test_a_snapshot_of_a_newer_version_is_refused_and_changes_nothing():
    with EmbeddedBroker(topics={"new": 1}) as newer, EmbeddedBroker(kafka_version="3.9", topics={"in": 1}) as kafka:
        snapshot = kafka.snapshot()
        kafka.produce("in", ["one"])
        with pytest.raises(
            ConfigError, match=r"Kafka 3\.9 cannot open a cluster with .*transaction\.version 2 \(unknown\)"
        ):
            kafka.restore(newer.snapshot())
        assert kafka.records("in").values == [b"one"]
        kafka.restore(snapshot)
        assert (kafka.topics, len(kafka.records("in"))) == ({"in": 1}, 0)
        newer.restore(snapshot)
        newer.produce("in", ["two"], transactional=True)
        assert newer.topics.keys() >= {"in"}
        assert levels_of(advertised(newer.bootstrap_servers)) == {"kraft.version": 1, "metadata.version": 21}


@pytest.mark.kafka(kafka_version="3.6", topics={"in": 1})
def test_clients_work_with_an_old_version(kafka, kafka_producer, kafka_consumer):
    producer = kafka_producer({"transactional.id": "t"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("in", b"value")
    producer.commit_transaction(DEADLINE_S)
    assert kafka_consumer("in").poll(DEADLINE_S).value() == b"value"
    (produce,) = kafka.requests(api="Produce")
    assert produce.version <= RECORDED["3.6"]["apis"]["0"][1]


def test_arguments_that_conflict_are_refused():
    with pytest.raises(ConfigError, match=r"kafka.version='2.8': expected one of 3\.6, 3\.7"):
        EmbeddedBroker(kafka_version="2.8")
    with pytest.raises(ConfigError, match=r"transaction_version=2: Kafka 3\.9 has no transaction\.version"):
        EmbeddedBroker(kafka_version="3.9", transaction_version=2)
    assert dict(served_apis("")) == SERVED


def test_a_broker_that_is_cut_off_keeps_its_version():
    with EmbeddedBroker(brokers=2, kafka_version="4.0") as kafka, kafka.stale_broker(2):
        found = advertised(kafka.bootstrap_servers.split(",")[1], 4)
        assert {each.name: [each.min_version, each.max_version] for each in found.supported_features} == {
            name: [low, high] for name, (low, high, _) in RECORDED["4.0"]["features"].items()
        }


def test_the_command_serves_a_version_and_prints_the_level_of_transactions(tmp_path):
    line, folder = r"listening on (.*)", ("--data-dir", str(tmp_path / "logs"))
    with running("--port", "0", "--kafka-version", "3.7", *folder, pattern=line) as (_, found):
        assert "transaction.version 0" in found
        assert {api.api_key: api.max_version for api in advertised(found.split()[0]).api_keys}[0] == 10
    # The folder keeps its level; with a control server an embedded broker prints the line.
    with running("--port", "0", "--control-port", "0", *folder, pattern=line) as (_, found):
        assert "transaction.version 0" in found
    (tmp_path / "broker.properties").write_text("kafka.version=4.0\n")
    with running("--port", "0", "--config", str(tmp_path / "broker.properties"), pattern=line) as (_, found):
        assert "transaction.version 2" in found
        served = {api.api_key: api.max_version for api in advertised(found.split()[0]).api_keys}
        assert served[10] == RECORDED["4.0"]["apis"]["10"][1]


TESTS = """
    import pytest

    def test_plain(kafka):
        assert kafka._call(lambda cluster: cluster.config.kafka_version) == "3.9"

    @pytest.mark.kafka(kafka_version="4.0")
    def test_of_another_version(kafka):
        pass

    @pytest.mark.kafka(transaction_version=2)
    def test_with_transactions_v2(kafka):
        pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run the tests above with the given arguments."""

    def run(*arguments: str) -> pytest.RunResult:
        pytester.makepyfile(TESTS)
        return pytester.runpytest_inprocess(
            "-p", "broker_core.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", "-rs", *arguments
        )

    return run


def test_the_plugin_runs_tests_with_a_version(run):
    result = run("--kafka-version", "3.9")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*kafka_version='4.0' of the test differs from --kafka-version 3.9",
            "*--kafka-version 3.9: transaction_version=2: Kafka 3.9 has no transaction.version",
        ]
    )


def test_the_plugin_refuses_what_cannot_work(run):
    run("--kafka-version", "2.0").stderr.fnmatch_lines(
        ["ERROR: --kafka-version: kafka.version='2.0': expected one of*"]
    )
    result = run("--kafka-version", "3.9", "--kafka-bootstrap", "localhost:1")
    result.stderr.fnmatch_lines(["ERROR: --kafka-version is for embedded brokers*"])


# Rule K.1/6.
def test_share_groups_are_a_preview_in_4_1():
    heartbeat = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["in"])
    with EmbeddedBroker(kafka_version="4.1", topics={"in": 1}) as kafka, RawClient(kafka.bootstrap_servers) as client:
        assert client.send(heartbeat, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert update(client, 2, ("share.version", 1, UPGRADE)) == (ErrorCode.NONE, None, [])
        # The cluster has no coordinator yet.
        assert client.send(heartbeat, 1).error_code == ErrorCode.NOT_COORDINATOR
