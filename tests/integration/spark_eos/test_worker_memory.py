"""The objects excluded from garbage collection, tested in a separate process because they stay excluded."""

import os
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
def test_modules_are_frozen_once_in_a_reused_worker(kept: dict[str, str], expected: str) -> None:
    command = [sys.executable, "-c", _PROGRAM]
    found = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected


_LOADING = """
import gc
from spark_eos.runtime import process_state
from spark_eos.worker_memory import loading_modules

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
with loading_modules(process_state()):
    import kafka.protocol.admin, asyncio
    kept = [[] for _ in range(100_000)]
during, frozen = len(collections), gc.get_freeze_count()
gc.disable()
with loading_modules(process_state()):
    pass
print(during, frozen > 100_000, gc.isenabled())
"""


def test_garbage_collection_is_disabled_while_modules_are_imported() -> None:
    command = [sys.executable, "-c", _LOADING]
    environment = os.environ | {"SPARK_REUSE_WORKER": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0 True False"
