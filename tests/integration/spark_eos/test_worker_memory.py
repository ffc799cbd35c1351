"""Check in a process of its own what is set aside from the garbage collector, since it stays so."""

import subprocess
import sys

import pytest

_PROGRAM = """
import gc
from spark_eos.runtime import process_state
from spark_eos.worker_memory import spare_modules

spare_modules(process_state())
first = gc.get_freeze_count()
again = [object(), []]
spare_modules(process_state())
second = gc.get_freeze_count()
import decimal, csv
spare_modules(process_state())
print(first > 1_000, second <= first, gc.get_freeze_count() > second)
"""


@pytest.mark.parametrize(
    ("kept", "expected"), [({"SPARK_REUSE_WORKER": "1"}, "True True True"), ({}, "False True False")]
)
def test_modules_are_spared_once_in_a_process_that_spark_keeps(kept: dict[str, str], expected: str) -> None:
    command = [sys.executable, "-c", _PROGRAM]
    found = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected
