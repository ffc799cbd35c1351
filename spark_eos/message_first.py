"""The first line of an error that Spark prints: its message, and not the frames above it.

In a Python process of Spark an exception becomes text, by default with 10 to 35 lines of frames of this package and of
PySpark. PySpark leaves them out where the environment has `SPARK_HIDE_TRACEBACK`, as it does with the setting
`spark.sql.execution.pyspark.udf.hideTraceback.enabled`. An error of this package says what to do, so it asks for the
same. The process ends with the exception, so no other is meant.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

from spark_eos.errors import EosKafkaError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
_Kind = TypeVar("_Kind", bound=type)


def message_first(kind: _Kind) -> _Kind:
    """Wrap the methods that Spark calls in its own processes, so that it prints errors of this package by message."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _wrapped(method))
    return kind


def _wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*arguments: Any, **keywords: Any) -> Any:
        with _frames_hidden():
            result = method(*arguments, **keywords)
        return _iterated(result) if inspect.isgenerator(result) else result

    return called


def _iterated(items: Iterator[Any]) -> Iterator[Any]:
    with _frames_hidden():
        yield from items


@contextmanager
def _frames_hidden() -> Iterator[None]:
    try:
        yield
    except EosKafkaError:
        program = getattr(sys.modules.get("__main__"), "__spec__", None)
        if program is not None and program.name.startswith("pyspark."):
            # A value that the user has set stays; an empty one shows the frames.
            os.environ.setdefault(_HIDE, "1")
        raise
