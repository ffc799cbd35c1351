"""The command `eos-kafka console` and its options."""

import argparse

from spark_eos.errors import OptionError


def run(chosen: argparse.Namespace) -> int:
    if chosen.once != (chosen.out is not None):
        raise OptionError("--once and --out belong together", remedy="Give both, or neither")
    if chosen.once and chosen.allow_changes:
        raise OptionError("--allow-changes has no meaning with --once", remedy="Leave out one of them")
    if chosen.once:
        from spark_eos.admin.console.static_pages import write_once

        return write_once(chosen)
    try:
        from spark_eos.admin.console.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise OptionError(
            f"The console needs the package {error.name}, which is not installed",
            remedy="Run `pip install '.[console]'` in a clone of eos-kafka. --once needs no further package",
        ) from error
    return serve(chosen)
