"""The check of kafka-python, whose messages both packages use.

Another package, kafka-python-ng, installs the same module, and kafka-python 2 has other classes. Both end in an error
about a name that cannot be imported, far from its cause.
"""

from typing import Final

# As in install_requires of setup.cfg.
_OLDEST: Final = (3, 0, 12)
_NEEDED: Final = "kafka-python>=3.0.12,<4"


def check_kafka_python() -> None:
    """Raise `ImportError`, with what to install, unless the module `kafka` belongs to kafka-python 3."""
    try:
        from kafka.version import __version__ as found
    except ImportError as error:
        if error.name == "kafka":
            raise ImportError(
                "eos-kafka needs kafka-python 3.0.12 or newer, below 4, which is not installed. Run `pip install "
                f"'{_NEEDED}'`, in the Python environments of the driver and of all executors if a cluster runs this",
                name="kafka",
            ) from error
        raise _refusal(f"which cannot be imported: {error}") from error
    numbers = tuple(int(digits) for digits in found.split(".")[:3] if digits.isdecimal())
    if not _OLDEST <= numbers < (_OLDEST[0] + 1,):
        raise _refusal(f"and the module kafka has version {found}")


def _refusal(found: str) -> ImportError:
    return ImportError(
        f"eos-kafka needs kafka-python 3.0.12 or newer, below 4, {found}. Run `pip uninstall kafka-python-ng`, which "
        f"installs a module of the same name, then `pip install --force-reinstall '{_NEEDED}'`. Code that needs "
        "another version of kafka-python needs a Python environment of its own",
        name="kafka",
    )


check_kafka_python()
