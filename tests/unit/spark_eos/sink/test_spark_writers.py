"""What the writers refuse before they ask a cluster."""

from typing import Any

import pytest

from spark_eos.errors import ClientStateError
from spark_eos.sink.messages import Empty, Place
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter


@pytest.mark.parametrize(("kind", "micro_batch"), [(BatchWriter, ()), (StreamWriter, (4,))])
def test_commit_without_the_result_of_a_task_is_refused(kind: Any, micro_batch: tuple[int, ...]) -> None:
    """Spark's type allows it: the rows of such a task would be lost."""
    results = [None, Empty(Place("q", "run", 4, 1)), None]
    with pytest.raises(ClientStateError, match=r"without the results of tasks 0, 2 of 3.*nothing of it.*continuous"):
        kind.__new__(kind).commit(results, *micro_batch)
