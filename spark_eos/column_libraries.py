"""The libraries of columns, which Spark's Python has or the extra `arrow` installs.

An installation on a cluster must not replace the versions that a platform has chosen, so pip does not see what is
needed: it is checked when a query starts.
"""

import re
import sys
from typing import Final

from spark_eos.errors import UnsupportedError

# As in the extra `arrow` of setup.cfg.
NEEDED: Final = {"pyarrow": (19, 0), "numpy": (1, 26)}


def check_column_libraries() -> None:
    """Refuse to read or write if pyarrow or NumPy is missing or too old."""
    try:
        import numpy
        import pyarrow

        found = {"pyarrow": pyarrow.__version__, "numpy": numpy.__version__}
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise _refusal(error.name, "which is not installed") from error
    except ImportError as error:
        # As under a limit of memory: the libraries take some 350 MiB of address space.
        raise UnsupportedError(
            f"The format eos-kafka cannot import pyarrow or NumPy: {error}",
            checked=f"Python {sys.version.split()[0]} at {sys.executable}",
            remedy="If spark.sql.planner.pythonExecution.memory or spark.executor.pyspark.memory is set, raise it to "
            "512 MiB or more, or leave it out. Otherwise install pyarrow and NumPy again in this Python",
        ) from error
    for name, version in found.items():
        if _numbers(version) < NEEDED[name]:
            raise _refusal(name, f"and finds {version}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])


def _refusal(name: str, found: str) -> UnsupportedError:
    needed = ".".join(map(str, NEEDED[name]))
    return UnsupportedError(
        f"The format eos-kafka needs {name} {needed} or newer, {found}",
        checked=f"Python {sys.version.split()[0]} at {sys.executable}",
        remedy="Run `pip install 'pyarrow>=19' 'numpy>=1.26'` in the Python environment of the driver and of all "
        "executors",
    )
