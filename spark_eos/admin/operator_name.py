"""The name under which an intervention is recorded if the operator gives none."""

import getpass
import os
import platform


def operator_name() -> str:
    """Return user and host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container the user id may have no name.
        name = str(os.getuid())
    return f"{name}@{platform.node()}"
