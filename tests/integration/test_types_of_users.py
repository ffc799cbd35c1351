"""Public signatures as a type checker reads them in the code of users."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# mypy keeps there what it has found in files that have not changed since.
CACHE = ROOT / ".cache" / "mypy-of-users"
# Lines with a mistake end in `# wrong`.
CODE = """
from datetime import timedelta

import spark_eos
from broker_core import ApiName, Disconnect, EmbeddedBroker, Error
from broker_core.aio import EmbeddedBroker as AsyncBroker
from pyspark.sql import DataFrame


def faults(kafka: EmbeddedBroker, twin: AsyncBroker, api: ApiName) -> None:
    kafka.fault(api="EndTxn", when="after_apply", action=Disconnect(), times=1)
    kafka.fault(api=api, action=lambda request: kafka.broker(request.broker).crash())
    kafka.fault(api="EndTx", action=Disconnect())  # wrong
    kafka.fault(api="EndTxn", when="after", action=Disconnect())  # wrong
    kafka.fault(api="EndTxn", action=Disconnect)  # wrong
    kafka.fault(api="EndTxn", action="Disconnect")  # wrong
    kafka.throttle(1.5, api="Fetch", times=2)
    kafka.throttle(1.5, api="Fetsch")  # wrong
    twin.throttle(1.5, tims=2)  # wrong
    twin.fault(api="EndTx", action=Error(1))  # wrong
    kafka.requests(api="Produc")  # wrong
    kafka.metrics.requests("Produc")  # wrong
    EmbeddedBroker(clock="sundial")  # wrong


def time(kafka: EmbeddedBroker) -> int:
    kafka.clock.advance(5, minutes=2)
    kafka.clock.advance(timedelta(hours=1))
    kafka.clock.advance(minuts=2)  # wrong
    kafka.records("t", isolation="committed")  # wrong
    return kafka.group("g").total_lag


def writes(frame: DataFrame, settings: dict[str, str]) -> None:
    spark_eos.write(frame, topic="orders", jobId="job", metricsPort=9000, **settings)
    spark_eos.write(frame, topic="orders", **{"kafka.bootstrap.servers": "host:9092", "kafka.acks": "all"})
    spark_eos.write(frame, topik="orders")  # wrong
    spark_eos.foreach_batch_sink(writeName=5)  # wrong
    typed: spark_eos.WriteOptions = {"kafka.bootstrap.servers": "host:9092", "batch.size": 65536}
    spark_eos.foreach_batch_sink(**typed)
"""


def test_a_type_checker_finds_misspelled_names_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "users.py"
    path.write_text(CODE, encoding="utf-8")
    options = ("--config-file=", "--strict", "--ignore-missing-imports", "--follow-imports=silent")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={CACHE}", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(CODE.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
