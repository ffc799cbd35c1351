"""What the README shows a test author runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_core import EmbeddedBroker

ROOT = Path(__file__).parents[2]
CHAPTER = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## In a test\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)
MARKER = "@pytest.mark.kafka"
DEADLINE_S = 120


def _commit(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("in", "v")
    producer.commit_transaction(30)


@pytest.mark.parametrize("block", [each for each in BLOCKS if MARKER not in each], ids=lambda each: each.split("\n")[0])
def test_a_block_of_the_readme_runs(block: str) -> None:
    exec(block, {"run_my_code": _commit, "EmbeddedBroker": EmbeddedBroker})


def test_the_pytest_marker_of_the_readme_runs(tmp_path: Path) -> None:
    [block] = [each for each in BLOCKS if MARKER in each]
    (tmp_path / "test_block.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
