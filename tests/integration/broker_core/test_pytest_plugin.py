"""The pytest plugin's fixtures, marker and option, in pytest runs of their own."""

import socket
import time
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker
from broker_core.pytest_plugin import real_cluster

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run a test file with the plugin, whether it is installed in this environment or not."""

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        # Loading other plugins takes time, so this one is loaded by name.
        return pytester.runpytest_inprocess(
            "-p", "broker_core.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", *arguments
        )

    return run


ROUND_TRIP = """
    import pytest

    def test_a_round_trip(kafka, kafka_producer, kafka_consumer):
        kafka.create_topic("round-trip", 2)
        producer = kafka_producer()
        producer.produce("round-trip", b"hello")
        assert producer.flush(30) == 0
        (message,) = kafka_consumer("round-trip").consume(1, timeout=30)
        assert message.value() == b"hello"
"""


def test_clients_are_made_and_closed(run):
    run(ROUND_TRIP).assert_outcomes(passed=1)


def test_fenced_producer_does_not_fail_its_test(run):
    run("""
        import pytest
        from confluent_kafka import KafkaException

        def test_fenced(kafka, kafka_producer):
            zombie, successor = (kafka_producer({"transactional.id": "t"}) for _ in range(2))
            zombie.init_transactions(30)
            zombie.begin_transaction()
            zombie.produce("topic", b"late", partition=0)
            zombie.flush(30)
            successor.init_transactions(30)
            with pytest.raises(KafkaException):
                zombie.commit_transaction(30)
    """).assert_outcomes(passed=1)


@pytest.mark.parametrize("end", ["crash()", "broker(1).stop()", "close()"])
def test_consumer_does_not_wait_for_a_broker_that_has_ended(run, end):
    result = run(f"""
        def test_it(kafka, kafka_consumer):
            kafka.produce("in", "x")
            assert kafka_consumer("in").poll(30)
            kafka.{end}
    """)
    result.assert_outcomes(passed=1)
    # `close` of a member of a group waits for 45 s.
    assert result.duration < 40


@pytest.mark.usefixtures("no_installed_plugins")
def test_plugin_emits_no_warnings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nfilterwarnings = error")
    pytester.makeconftest("from broker_core import EmbeddedBroker")
    pytester.makepyfile("def test_a_broker(kafka): kafka.create_topic('t')")
    # It runs in its own process, which has not imported kafka-python's messages yet.
    done = pytester.runpytest_subprocess("-p", "broker_core.pytest_plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, warnings=0)


def test_marker_configures_a_separate_broker_per_test(run):
    run("""
        import pytest

        @pytest.mark.kafka(brokers=3, topics={"in": 4}, transaction_version=1)
        def test_as_marked(kafka):
            assert len(kafka.bootstrap_servers.split(",")) == 3
            assert kafka.partition("in", 3).high_watermark == 0
            assert kafka._call(lambda cluster: cluster.metadata.transaction_version) == 1

        def test_another(kafka):
            assert len(kafka.bootstrap_servers.split(",")) == 1
            with pytest.raises(Exception, match="in-3|topic 'in'"):
                kafka.partition("in", 3)
    """).assert_outcomes(passed=2)


def test_arguments_that_would_be_ignored_are_refused(run):
    result = run("""
        import pytest

        @pytest.mark.kafka("3.9")
        def test_marker(kafka):
            pass

        @pytest.mark.kafka(brokers=3)
        def test_marker_of_a_shared_broker(kafka_cluster, kafka_producer):
            pass

        @pytest.mark.kafka(brokers=2)
        def test_both_brokers(kafka_cluster, kafka):
            assert (len(kafka.broker_ids), len(kafka_cluster.broker_ids)) == (2, 1)

        # Without arguments nothing is ignored: it may be a mark to select tests by.
        @pytest.mark.kafka
        def test_marker_without_arguments(kafka_cluster):
            assert len(kafka_cluster.broker_ids) == 1

        @pytest.mark.skip
        @pytest.mark.kafka(brokers=3)
        def test_that_is_skipped(kafka_cluster):
            pass

        def test_topics_in_a_list(kafka_consumer):
            kafka_consumer(["in", "out"])
    """)
    result.assert_outcomes(errors=2, failed=1, passed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*TypeError: the marker kafka has ('3.9',) without a name; write for example kafka(brokers=3)*",
            "*TypeError: the marker kafka is for the fixture kafka, and this test uses only kafka_cluster*",
            "*TypeError: kafka_consumer has ?'in', 'out'?; expected topics as str, and dictionaries of settings*",
        ]
    )


def test_the_cluster_is_shared(run):
    run("""
        addresses = set()

        def test_one(kafka_cluster, kafka_producer):
            addresses.add(kafka_cluster.bootstrap_servers)
            kafka_producer().list_topics(timeout=30)
            assert kafka_cluster.requests(api="Metadata"), "the producer goes to the cluster that the test asked for"

        def test_two(kafka_cluster):
            addresses.add(kafka_cluster.bootstrap_servers)
            assert len(addresses) == 1
    """).assert_outcomes(passed=2)


def test_shared_cluster_is_included_in_the_report(run):
    result = run("""
        def test_it_fails(kafka_cluster, kafka_producer):
            kafka_producer({"client.id": "me"}).list_topics(timeout=30)
            assert False
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*kafka requests*", "*Metadata v* me User:ANONYMOUS*", "none was written"])


FAILING = """
    def test_it_fails(kafka, kafka_producer):
        producer = kafka_producer({"transactional.id": "story", "client.id": "me"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("shown", b"the value")
        producer.flush(30)
        assert False
"""


def test_failure_report_shows_requests_and_partitions(run):
    result = run(FAILING)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*kafka requests*",
            "*InitProducerId v* me User:ANONYMOUS: transactional_id=story -> answered*",
            "*kafka partitions*",
            "shown-0: log start 0, LSO 0, HW 1*",
            "*transactional*'the value'*",
        ]
    )


def test_passing_test_prints_no_report(run):
    assert "kafka requests" not in run(ROUND_TRIP, "-rA").stdout.str()


def test_unreachable_cluster_is_reported_and_waited_for_once(run, monkeypatch):
    patience_s, tests = 2, 20
    monkeypatch.setattr(real_cluster, "_PATIENCE_S", patience_s)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        result = run(
            "import pytest\n" + "".join(f"def test_{number}(kafka): pass\n" for number in range(tests)),
            "--kafka-bootstrap",
            address,
        )
    result.assert_outcomes(errors=tests)
    assert time.monotonic() - began < tests * patience_s
    result.stdout.fnmatch_lines([f"--kafka-bootstrap {address}: no broker answered a metadata request within 2 s (*)"])
    assert "Traceback" not in result.stdout.str()


SECURED = {"listeners": {"SECURED": "SASL_PLAINTEXT"}, "users": {"ann": "s3cret"}}


def test_cluster_with_password_authentication_is_used(run, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text(
        "# credentials\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism = PLAIN\n\n"
        "sasl.username=ann\nsasl.password=s3cret\nlog_level=0\n"
    )
    with EmbeddedBroker(**SECURED) as real:
        arguments = "--kafka-bootstrap", real.bootstrap_servers, "--kafka-config", str(config)
        run(ROUND_TRIP, *arguments).assert_outcomes(passed=1)
        result = run(
            """
    from confluent_kafka import Consumer

    def test_a_separate_client(kafka, kafka_producer):
        producer = kafka_producer()
        producer.produce("seen", b"hello")
        assert producer.flush(30) == 0
        own = Consumer({**kafka.client_settings, "group.id": "g"})
        assert own.list_topics("seen", timeout=30).topics["seen"].error is None
        own.close()
        raise AssertionError("let the report be shown")
""",
            *arguments,
        )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: null='hello'"])
    assert "s3cret" not in result.stdout.str()


def test_client_settings_of_the_embedded_broker_contain_its_address(run):
    run("""
    def test_it(kafka):
        assert kafka.client_settings == {"bootstrap.servers": kafka.bootstrap_servers}
""").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "*--kafka-config *client.properties: *No such file*"),
        ("security.protocol=SSL\nsasl.password s3cret\n", "*setting 2 is not of the form name=value"),
    ],
)
def test_invalid_client_config_file_ends_the_run(run, tmp_path, content, message):
    config = tmp_path / "client.properties"
    if content is not None:
        config.write_text(content)
    result = run("def test(): pass", "--kafka-bootstrap", "127.0.0.1:1", "--kafka-config", str(config))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    assert "s3cret" not in result.stderr.str()


def test_client_config_file_requires_a_cluster(run):
    result = run("def test(): pass", "--kafka-config", "client.properties")
    result.stderr.fnmatch_lines(["*--kafka-config needs --kafka-bootstrap*"])


def test_setting_unknown_to_librdkafka_is_reported(run, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("security.protocl=SSL\n")
    result = run("def test_it(kafka): pass", "--kafka-bootstrap", "127.0.0.1:1", "--kafka-config", str(config))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['--kafka-config: librdkafka refuses the settings: *"security.protocl"*'])


def test_user_fixture_overrides_the_plugin_fixture(run):
    run("""
        import pytest

        @pytest.fixture
        def kafka():
            return "mine"

        def test_it(kafka):
            assert kafka == "mine"
    """).assert_outcomes(passed=1)
