"""Input, topics and failpoints of the sink's tests in Spark."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.spark_eos.sink_topic import Topic, make_topic

FILES = 3
LINES = 50


@pytest.fixture
def topic(kafka_address: str) -> Topic:
    return make_topic(kafka_address)


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def arm(failpoints_file: Path, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Arm one rule that acts once among all processes of the session."""

    def arm_once(rule: str) -> None:
        point, action = rule.split("=", 1)
        failpoints_file.write_text(f"{point}=once:{tmp_path / uuid.uuid4().hex}|{action}")

    yield arm_once
    failpoints_file.unlink(missing_ok=True)


@pytest.fixture
def input_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(FILES):
        lines = "".join(f"file{number}-line{line}\n" for line in range(LINES))
        (folder / f"{number}.txt").write_text(lines)
        os.utime(folder / f"{number}.txt", (number, number))
    return folder


EXPECTED = sorted(f"file{number}-line{line}" for number in range(FILES) for line in range(LINES))
