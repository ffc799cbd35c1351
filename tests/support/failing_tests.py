"""A project of tests that fail in many ways, each with a broker: the sources of its files."""

CONFTEST = """
    import json
    import pytest
    from _pytest.runner import runtestprotocol

    FOUND = []

    def pytest_runtest_logreport(report):
        sections = [each for each in report.sections if each[0].startswith("kafka")]
        FOUND.append([report.nodeid, report.when, report.outcome, sections])

    def pytest_sessionfinish(session):
        if not hasattr(session.config, "workerinput"):
            with open("found.json", "w") as file:
                json.dump(FOUND, file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        # As plugins do that run a failed test again.
        if item.name == "test_twice":
            for _ in range(2):
                item._initrequest()
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                runtestprotocol(item, nextitem=nextitem)
                item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            return True
"""
FIXTURES = """
    import os
    import pytest
    from dataclasses import dataclass
    from broker_core import EmbeddedBroker

    @dataclass
    class Environment:
        broker: EmbeddedBroker

    @pytest.fixture(scope="module")
    def shared():
        with EmbeddedBroker() as broker:
            yield Environment(broker)

    @pytest.fixture
    def environment(shared):
        return shared

    def ask(broker, client_id):
        # Not librdkafka: on a busy machine its second connection asks when the next test has begun.
        from kafka import KafkaAdminClient
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, client_id=client_id)
        admin.list_topics()
        admin.close()

    def test_before(environment):
        ask(environment.broker, "client of another test")

    def test_shared(environment):
        ask(environment.broker, "own client")
        environment.broker.produce("in-shared", ["x"])
        assert False

    def test_on_demand(request):
        request.getfixturevalue("shared")
        assert False

    def test_without_the_shared_broker():
        assert False

    class TestOwnFixture:
        @pytest.fixture
        def kafka(self):
            with EmbeddedBroker() as broker:
                yield broker

        def test_own(self, kafka):
            kafka.produce("in-own", ["x"])
            pytest.fail("the reason")

        @pytest.mark.parametrize("name", ["a/b", "a-b", "\\u00fc", pytest.param("", id="long" * 90)])
        def test_named(self, kafka, name):
            os.chdir("/")
            assert False

        def test_twice(self, kafka):
            assert False

    @pytest.fixture(scope="module", params=["one", "two"])
    def one_by_one(request):
        with EmbeddedBroker() as broker:
            broker.produce(f"in-{request.param}", ["x"])
            yield broker

    def test_of_each(one_by_one):
        assert False

    class TestAutouse:
        @classmethod
        def setup_class(cls):
            cls.broker = EmbeddedBroker().start()

        @classmethod
        def teardown_class(cls):
            cls.broker.close()

        def test_starts_it(self):
            pass

        def test_does_not_need_it(self):
            assert False

        def test_needs_it(self):
            self.broker.produce("in-always", ["x"])
            assert False

    @pytest.fixture
    def fails_in_setup(kafka):
        kafka.produce("in-setup", ["x"])
        raise ValueError

    def test_setup(fails_in_setup):
        pass

    @pytest.fixture
    def fails_in_teardown(kafka):
        yield
        kafka.produce("in-teardown", ["x"])
        raise ValueError

    def test_teardown(fails_in_teardown):
        assert False

    @pytest.fixture
    def fails_last():
        yield
        raise ValueError

    def test_stopped_before_the_teardown(fails_last, kafka):
        kafka.produce("in-stopped", ["x"])

    @pytest.mark.xfail
    def test_expected_to_fail(kafka):
        assert False

    @pytest.mark.xfail(strict=True)
    def test_passes_unexpectedly(kafka):
        pass

    def test_skipped(kafka):
        pytest.skip("not here")

    @pytest.fixture(scope="module")
    def module_check(shared):
        yield
        shared.broker.produce("in-module", ["x"])
        raise ValueError

    def test_checked(module_check):
        pass

    def test_last():
        pass
"""
BODIES = """
    import asyncio
    import functools
    import unittest
    from broker_core import EmbeddedBroker
    from broker_core.aio import EmbeddedBroker as AsyncBroker

    def test_in_the_body():
        with EmbeddedBroker() as broker:
            broker.produce("in-body", ["x"])
            assert False

    def test_after_the_block():
        with EmbeddedBroker() as broker:
            broker.produce("in-block", ["x"])
        assert False

    def test_folder(tmp_path):
        with EmbeddedBroker(data_dir=tmp_path) as broker:
            broker.produce("in-folder", ["x"])
            assert False

    def test_folder_and_asyncio(tmp_path):
        async def main():
            async with AsyncBroker(data_dir=tmp_path) as broker:
                await broker.produce("in-async-folder", ["x"])
                assert False
        asyncio.run(main())

    def test_crashed(kafka):
        kafka.produce("in-crashed", ["x"])
        kafka.crash()
        assert False

    def test_crashed_and_closed():
        with EmbeddedBroker() as broker:
            broker.produce("in-crashed-and-closed", ["x"])
            broker.crash()
        assert False

    def test_async_body():
        async def main():
            async with AsyncBroker() as broker:
                await broker.produce("in-async", ["x"])
                assert False
        asyncio.run(main())

    def test_two_brokers(kafka):
        with EmbeddedBroker() as other:
            kafka.produce("in-one", ["x"])
            other.produce("in-other", ["x"])
            assert False

    def test_six_brokers():
        for _ in range(6):
            EmbeddedBroker().start().close()
        assert False

    @functools.cache
    def cached():
        return EmbeddedBroker().start()

    def test_starts_a_broker():
        cached().produce("in-cached", ["x"])

    def test_uses_that_broker():
        assert cached().topics == {}

    def test_does_not_use_that_broker():
        assert False

    def test_subtests(kafka, subtests):
        for number in range(2):
            with subtests.test(number=number):
                kafka.produce("in-subtests", ["x"])
                assert False

    class Case(unittest.TestCase):
        def setUp(self):
            self.kafka = EmbeddedBroker().start()
            self.addCleanup(self.kafka.close)

        def test_case(self):
            self.kafka.produce("in-case", ["x"])
            self.fail("the reason")

        def test_sub(self):
            with self.subTest("part"):
                self.kafka.produce("in-sub", ["x"])
                self.fail("the reason")

    class ClassCase(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.kafka = EmbeddedBroker().start()
            cls.addClassCleanup(cls.kafka.close)

        def test_first(self):
            pass

        def test_second(self):
            self.kafka.produce("in-class", ["x"])
            self.fail("the reason")

        def test_third(self):
            with EmbeddedBroker():
                self.kafka.produce("in-class", ["x"])
                self.fail("the reason")

    class AsyncCase(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self):
            self.kafka = await self.enterAsyncContext(AsyncBroker())

        async def test_async_case(self):
            await self.kafka.produce("in-async-case", ["x"])
            self.fail("the reason")
"""
