"""The optional compiled build: with `EOS_KAFKA_COMPILED=1`, mypyc translates the broker's hot path to C.

The metadata of the package is in setup.cfg. Without the variable the wheel is pure Python. A compiled wheel contains
the sources too, for tracebacks and for other versions of Python.

The links of the README are relative, so that they work wherever the repository lies. A package index has no files
beside the README: `EOS_KAFKA_HOME`, the address of the repository's files, makes the links absolute in the metadata,
and the address below each error (`broker_core.errors_page`).
"""

import os
import re
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

# The path of a request from its frame to its response: Produce, Fetch and the requests of transactions. What else the
# broker does takes too little time to be worth the build.
MODULES = (
    "broker/authorization",
    "broker/broker",
    "features/quotas/limits",
    "broker/connection",
    "broker/controller",
    "broker/fetch_sessions",
    "broker/handlers/fetch",
    "broker/handlers/produce",
    "broker/handlers/transactions",
    "broker/journals",
    "broker/limits",
    "broker/log_manager",
    "broker/marker_writer",
    "broker/metadata",
    "broker/meters",
    "broker/request_context",
    "broker/stale_broker",
    "coordinator/transactions/completion",
    "coordinator/transactions/conditions",
    "coordinator/transactions/coordinator",
    "coordinator/transactions/messages",
    "coordinator/transactions/records",
    "coordinator/transactions/store",
    "coordinator/transactions/transitions",
    "decision_table",
    "log/filtered_batches",
    "log/indexes",
    "log/leader_epochs",
    "log/partition_log",
    "log/producer_entry",
    "log/producer_rules",
    "log/producer_state",
    "log/reading",
    "log/retention",
    "log/segment",
    "log/state",
    "log/validation",
    "log/write_ahead",
    "records/batch",
    "records/control",
    "records/header",
    "records/record_scan",
    "records/validation",
    "server/connection_protocol",
    "server/disk",
    "wire/compact_fields",
    "wire/error_responses",
    "wire/fetch_response",
    "wire/framing",
    "wire/layout",
    "wire/plain_produce",
)

# The C compiler's level of optimization makes no difference to the broker, and the first one halves the time it takes.
# Without optimization it takes a fifth, which is enough for tests: see tests/support/compiled.py.
_FOR_C = {"debug_level": "0", "opt_level": os.environ.get("EOS_KAFKA_OPTIMIZATION", "1")}


class CompiledDistribution(Distribution):
    """A distribution with extension modules, which are known only once mypyc is installed."""

    def has_ext_modules(self) -> bool:
        """Return True, so that the wheel is one for this platform and version of Python."""
        return True

    def run_command(self, command: str) -> None:
        """Run a command; end before an editable installation, whose list of files would need the translation."""
        if command == "editable_wheel":
            sys.exit(
                "EOS_KAFKA_COMPILED=1 cannot be used for an editable installation: Python would import the compiled "
                "modules, whatever you edit. Unset it, or build a wheel with `pip wheel --no-build-isolation`."
            )
        super().run_command(command)


class BuildCompiled(build_ext):
    """The command that translates the modules to C, and then compiles them."""

    def finalize_options(self) -> None:
        """Let mypyc add its extension modules, or end if it is missing."""
        try:
            from mypyc.build import mypycify
        except ModuleNotFoundError:
            sys.exit(
                "EOS_KAFKA_COMPILED=1 needs mypyc in the environment of the build. "
                "Run `pip install setuptools 'mypy[mypyc]'`, and build with `pip wheel --no-build-isolation`."
            )
        sources = [str(Path("broker_core", f"{module}.py")) for module in MODULES]
        # The folder of a feature may be deleted. Any other module that is missing ends the build: mypyc names it.
        sources = [each for each in sources if Path(each).parent.is_dir()]
        # Types are checked by `make types`, with the dependencies and the stubs at hand. Here they need not be there.
        options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        self.distribution.ext_modules = mypycify([*options, *sources], group_name="broker_core", **_FOR_C)
        super().finalize_options()


def read_me(home: str) -> str:
    """Return the README; its links are absolute if there is a home."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?://|#)", f"]({home.rstrip('/')}/", text) if home else text


home = os.environ.get("EOS_KAFKA_HOME", "")
described = {"long_description": read_me(home), "url": home}
if os.environ.get("EOS_KAFKA_COMPILED") == "1":
    setup(**described, distclass=CompiledDistribution, cmdclass={"build_ext": BuildCompiled})
else:
    setup(**described)
