"""The pytest plugin's tests on an existing cluster, with --kafka-bootstrap: on Apache Kafka with --apache."""

import pytest

from tests.support.clients import Kafka, admin, unique

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, kafka: Kafka):
    """Run tests on the broker under test; NAME in their source stands for a unique name."""

    def run(source: str, *arguments: str, name: str = "") -> pytest.RunResult:
        pytester.makepyfile("import pytest\n" + source.replace("NAME", name or unique("plugin")))
        return pytester.runpytest_inprocess(
            "-p",
            "broker_core.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "--strict-markers",
            "-rs",
            "--kafka-bootstrap",
            kafka.bootstrap_servers,
            *arguments,
        )

    return run


def topics_and_groups(kafka: Kafka) -> tuple[set[str], set[str]]:
    asked = admin(kafka)
    topics = {name for name in asked.list_topics(timeout=30).topics if not name.startswith("__")}
    return topics, {group.group_id for group in asked.list_consumer_groups().result(30).valid}


def check_nothing_is_left(kafka: Kafka, before: tuple[set[str], set[str]]) -> None:
    topics, groups = topics_and_groups(kafka)
    # A group that an earlier test has left may end meanwhile.
    assert (topics - before[0], groups - before[1]) == (set(), set())


def test_fixtures_marker_and_clients_work_and_clean_up(run, kafka: Kafka):
    before = topics_and_groups(kafka)
    result = run("""
@pytest.mark.kafka(brokers=1, topics={"NAME-in": 3, "NAME-out": 1})
def test_a_transaction(kafka, kafka_producer, kafka_consumer):
    assert len(kafka_producer().list_topics(timeout=30).topics["NAME-in"].partitions) == 3
    producer = kafka_producer({"transactional.id": "NAME"})
    producer.init_transactions(30)
    for value, end in ((b"no", producer.abort_transaction), (b"yes", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("NAME-out", value)
        producer.flush(30)
        end(30)
    committed = kafka_consumer("NAME-out")
    assert [message.value() for message in committed.consume(1, timeout=30)] == [b"yes"]
    all_there_is = kafka_consumer("NAME-out", {"group.id": "NAME-all", "isolation.level": "read_uncommitted"})
    assert [message.value() for message in all_there_is.consume(2, timeout=30)] == [b"no", b"yes"]

def test_a_topic_without_a_client(kafka, kafka_consumer):
    kafka.create_topic("NAME-made", 2, {"retention.ms": "12345"})
    assert len(kafka_consumer().list_topics(timeout=30).topics["NAME-made"].partitions) == 2

@pytest.mark.parametrize("turn", [1, 2])
def test_the_cluster_is_shared(kafka_cluster, kafka_producer, kafka_consumer, turn):
    if turn == 1:
        kafka_cluster.create_topic("NAME-shared")
    producer = kafka_producer()
    producer.produce("NAME-shared", b"%d" % turn)
    assert producer.flush(30) == 0
    consumer = kafka_consumer("NAME-shared", {"group.id": f"NAME-{turn}"})
    assert [message.value() for message in consumer.consume(turn, timeout=30)] == [b"1", b"2"][:turn]

@pytest.mark.kafka(topics={"NAME-gone": 1})
def test_test_may_delete_its_own_topic(kafka):
    from confluent_kafka.admin import AdminClient
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics(["NAME-gone"])["NAME-gone"].result(30)

def test_waiting_needs_no_broker_of_ours(kafka):
    assert kafka.wait_for(lambda: 7) == 7
    with pytest.raises(AssertionError, match="condition not met within 0.1 s"):
        kafka.wait_for(lambda: 0, timeout=0.1)
""")
    result.assert_outcomes(passed=6)
    check_nothing_is_left(kafka, before)
    assert "left on" not in result.stdout.str()


def test_tests_that_need_the_embedded_broker_are_skipped_with_a_reason(run):
    result = run("""
def test_with_a_fault(kafka):
    kafka.fault(api="Fetch", action=None)

def test_without_a_coordinator(kafka):
    with kafka.without_coordinator(group="g"):
        assert False

def test_with_a_stale_broker(kafka):
    with kafka.stale_broker(1):
        assert False

def test_that_looks_inside(kafka_cluster):
    kafka_cluster.partition("in", 0)

@pytest.mark.kafka(clock="virtual", topics={"NAME": 1})
def test_with_virtual_time(kafka):
    assert False

@pytest.mark.kafka(transaction_version=1)
def test_with_the_old_protocol(kafka):
    assert False

@pytest.mark.kafka(config={"auto.create.topics.enable": "false"})
def test_with_a_brokers_setting(kafka):
    assert False

@pytest.mark.kafka(brokers=3)
def test_with_three_brokers(kafka):
    assert False

def test_a_wrong_name_is_an_error(kafka):
    with pytest.raises(AttributeError):
        kafka.no_such_thing
""")
    result.assert_outcomes(passed=1, skipped=8)
    result.stdout.fnmatch_lines_random(
        [
            "*kafka.fault needs the embedded broker: run without --kafka-bootstrap",
            "*kafka.without_coordinator needs the embedded broker: run without --kafka-bootstrap",
            "*kafka.stale_broker needs the embedded broker: run without --kafka-bootstrap",
            "*kafka.partition needs the embedded broker: run without --kafka-bootstrap",
            "*clock='virtual' needs the embedded broker: run without --kafka-bootstrap",
            "*transaction_version=1 needs the embedded broker: run without --kafka-bootstrap",
            "*config={'auto.create.topics.enable': 'false'} needs the embedded broker: run without --kafka-bootstrap",
            "*the test needs 3 brokers; the real cluster has 1",
        ]
    )


def test_tests_do_not_see_topics_of_each_other(run, kafka: Kafka):
    before = topics_and_groups(kafka)
    result = run('''
@pytest.mark.kafka(topics={"NAME-in": 1})
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_each_reads_what_it_wrote_itself(kafka, kafka_producer, kafka_consumer, turn):
    """A topic of the same name, a group of the same name, a transactional id that was left with a transaction open."""
    producer = kafka_producer({"transactional.id": "NAME"})
    producer.init_transactions(30)
    for topic in ("NAME-in", "NAME-by-the-way"):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % turn)
        producer.commit_transaction(30)
    for topic, settings in (("NAME-in", {}), ("NAME-by-the-way", {"group.id": "NAME"})):
        consumer = kafka_consumer(topic, settings)
        (message,) = consumer.consume(1, timeout=30)
        assert (message.value(), message.offset()) == (b"%d" % turn, 0)
        consumer.commit(message, asynchronous=False)
    producer.begin_transaction()
    producer.produce("NAME-in", b"never ended")
    producer.flush(30)
''')
    result.assert_outcomes(passed=3)
    check_nothing_is_left(kafka, before)


def test_transaction_left_open_by_a_test_does_not_block_others(run):
    run("""
def test_that_leaves_one(kafka_cluster, kafka_producer):
    kafka_cluster.create_topic("NAME")
    producer = kafka_producer({"transactional.id": "NAME"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("NAME", b"never ended")
    producer.flush(30)

def test_that_reads_on(kafka_cluster, kafka_producer, kafka_consumer):
    producer = kafka_producer()
    producer.produce("NAME", b"after it")
    producer.flush(30)
    # The transaction's own timeout would end it after 60 s.
    assert [message.value() for message in kafka_consumer("NAME").consume(1, timeout=20)] == [b"after it"]
""").assert_outcomes(passed=2)


def test_existing_topics_and_groups_are_left_alone(run, kafka: Kafka):
    name = unique("plugin")
    result = run(
        """
from confluent_kafka.admin import NewTopic, AdminClient
from confluent_kafka import Consumer, Producer, TopicPartition

def test_another_user_is_there_first(request):
    address = request.config.getoption("--kafka-bootstrap")
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("NAME", 1)])["NAME"].result(30)
    for group in ("NAME", "test"):
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        consumer.commit(offsets=[TopicPartition("NAME", 0, 1)], asynchronous=False)
        consumer.close()

@pytest.mark.kafka(topics={"NAME": 1})
def test_with_a_topic(kafka):
    assert False

def test_with_a_group(kafka, kafka_consumer):
    kafka_consumer("NAME", {"group.id": "NAME"})
    assert False

def test_that_only_writes_and_reads(kafka, kafka_producer, kafka_consumer):
    producer = kafka_producer()
    producer.produce("NAME", b"mine")
    producer.flush(30)
    # In the group that such a consumer is in with an embedded broker, it would begin behind the record.
    assert [message.value() for message in kafka_consumer("NAME").consume(1, timeout=30)] == [b"mine"]

def test_with_a_client_of_its_own(kafka):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("NAME-unseen", b"mine")
    producer.flush(30)
""",
        name=name,
    )
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            f"*the real cluster already has a topic '{name}', which may belong to another user",
            f"*the real cluster already has a group '{name}', which may belong to another user",
            f"left on {kafka.bootstrap_servers}: topics created during the test: *{name}-unseen*",
        ]
    )
    topics, groups = topics_and_groups(kafka)
    assert {name, f"{name}-unseen"} <= topics
    assert name in groups
    ours = admin(kafka)
    deletions = ours.delete_topics([name, f"{name}-unseen"]) | ours.delete_consumer_groups([name, "test"])
    for deletion in deletions.values():
        deletion.result(30)


@pytest.mark.parametrize("fixture", ["kafka", "kafka_cluster"])
def test_failure_report_contains_cluster_state(run, kafka: Kafka, fixture: str):
    name = unique("plugin")
    result = run(
        """
def test_it_fails(FIXTURE, kafka_producer):
    FIXTURE.create_topic("NAME", 2)
    producer = kafka_producer({"transactional.id": "NAME"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("NAME", b"value %d" % number, b"key", 1)
    producer.flush(30)
    assert False
""".replace("FIXTURE", fixture),
        name=name,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*kafka cluster*",
            f"{kafka.bootstrap_servers} is a real cluster: its request log is not available*",
            f"{name}-1: log start 0, LSO 0, HW 30",
            "  ... 20 earlier offsets",
            "  20: 'key'='value 20'",
            "  29: 'key'='value 29'",
        ]
    )
    assert f"{name}-0" not in result.stdout.str(), "nothing was written there"
