"""`kafka_version` of the embedded broker, the command and the pytest plugin."""

import json

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from broker_core import ConfigError, EmbeddedBroker, ErrorCode
from broker_core.wire.kafka_versions import served_apis
from broker_core.wire.messages import ShareGroupHeartbeatRequest
from broker_core.wire.versions import SERVED
from tests.support.broker_core.broker_command import running
from tests.support.raw_client import RawClient
from tests.support.recorded_api_versions import FILE, PATCHES

pytest_plugins = ["pytester"]

DEADLINE_S = 30
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
VERSIONS = [patch.rpartition(".")[0] for patch in PATCHES]


def versions_of(address, version=3):
    with RawClient(address) as client:
        return client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)


def test_every_version_is_recorded():
    assert list(RECORDED) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_serves_its_apis_and_features(version):
    with EmbeddedBroker(kafka_version=version, topics={"in": 1}) as kafka:
        found = versions_of(kafka.bootstrap_servers)
        assert found.api_keys
        for api in found.api_keys:
            low, high = RECORDED[version]["apis"][str(api.api_key)]
            assert low <= max(api.min_version, SERVED[api.api_key].min_version)
            assert api.max_version == min(high, SERVED[api.api_key].max_version)
        supported = {each.name for each in found.supported_features}
        assert supported | {each.name for each in found.finalized_features} <= RECORDED[version]["features"].keys()
        # The test's own records and transactions use the newest protocol of the version.
        kafka.produce("in", ["plain"])
        kafka.produce("in", ["in a transaction"], transactional=True)
        assert kafka.records("in", isolation="read_committed").values == [b"plain", b"in a transaction"]
        levels = kafka._call(lambda cluster: dict(cluster.metadata.features))
        assert (levels["transaction.version"], levels["group.version"]) == ((2, 1) if version >= "4" else (0, 0))


def test_requests_of_a_newer_version_are_refused():
    with EmbeddedBroker(kafka_version="3.9.1") as kafka:
        answer = versions_of(kafka.bootstrap_servers, 4)
        assert max(api.max_version for api in answer.api_keys if api.api_key == MetadataRequest.API_KEY) == 12
        with RawClient(kafka.bootstrap_servers) as client:
            client.post(MetadataRequest(topics=[]), 13)
            assert client.is_closed_by_peer()


def test_features_that_the_version_lacks_cannot_be_set():
    with EmbeddedBroker(kafka_version="3.9") as kafka, RawClient(kafka.bootstrap_servers) as client:
        form = UpdateFeaturesRequest.FeatureUpdateKey
        update = form(feature="transaction.version", max_version_level=1, upgrade_type=1)
        answer = client.send(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Kafka 3.9 has no feature transaction.version" in answer.error_message


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


def test_the_command_serves_a_version(tmp_path):
    with running("--port", "0", "--kafka-version", "3.7") as (_, address):
        assert {api.api_key: api.max_version for api in versions_of(address).api_keys}[0] == 10
    (tmp_path / "broker.properties").write_text("kafka.version=3.8\n")
    with running("--port", "0", "--config", str(tmp_path / "broker.properties")) as (_, address):
        assert {api.api_key: api.max_version for api in versions_of(address).api_keys}[10] == RECORDED["3.8"]["apis"][
            "10"
        ][1]


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
    with (
        EmbeddedBroker(kafka_version="4.1", topics={"in": 1}) as kafka,
        RawClient(kafka.bootstrap_servers) as client,
    ):
        assert client.send(heartbeat, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
