"""The requirements in setup.cfg: cached environments are made again when they change."""

import configparser
import hashlib
from pathlib import Path

_SETUP = Path(__file__).parents[2] / "setup.cfg"


def requirements_digest(*more: str) -> str:
    """Return a digest of the requirements of the package with the extra `arrow`, and of more of them."""
    read = configparser.ConfigParser(interpolation=None)
    read.read(_SETUP, encoding="utf-8")
    own = (read["options"]["install_requires"], read["options.extras_require"]["arrow"])
    return hashlib.sha256(repr((own, more)).encode()).hexdigest()
