"""The optional compiled build: `EOS_KAFKA_COMPILED=1 pip install .` lets mypyc translate the broker's hot path to C.

The metadata of the package is in setup.cfg. Without the variable this file adds nothing, and the wheel is pure Python.
A compiled wheel contains the sources too, for tracebacks and for other versions of Python.
"""

import os
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

# The path of a request from its frame to its response: Produce, Fetch and the requests of transactions. What else the
# broker does takes too little time to be worth the build.
MODULES = (
    "broker/authorization",
    "broker/broker",
    "broker/connection",
    "broker/dispatch",
    "broker/handlers/produce",
    "broker/handlers/transactions",
    "broker/journals",
    "broker/log_manager",
    "broker/marker_writer",
    "broker/meters",
    "broker/partition_verification",
    "broker/request_context",
    # It derives classes from those of other modules here, which only a compiled module can.
    "broker/stale_broker",
    "coordinator/transactions/completion",
    "coordinator/transactions/coordinator",
    "coordinator/transactions/marker_queue",
    "coordinator/transactions/records",
    "coordinator/transactions/store",
    "coordinator/transactions/transitions",
    "decision_table",
    "log/leader_epochs",
    "log/partition_log",
    "log/producer_entry",
    "log/producer_state",
    "log/rolling",
    "log/segment",
    "log/segment_list",
    "log/state",
    "log/validation",
    "records/batch",
    "records/header",
    "records/record_scan",
    "records/validation",
    "wire/error_responses",
    "wire/framing",
    "wire/plain_end_txn",
    "wire/plain_form",
    "wire/plain_produce",
)


class CompiledDistribution(Distribution):
    """A distribution with extension modules, which are known only once mypyc is installed."""

    def has_ext_modules(self) -> bool:
        """Return True, so that the wheel is one for this platform and version of Python."""
        return True


class BuildCompiled(build_ext):
    """The command that translates the modules to C, and then compiles them."""

    def finalize_options(self) -> None:
        """Let mypyc add its extension modules; a broken build environment raises ModuleNotFoundError."""
        from mypyc.build import mypycify

        sources = [str(Path("broker_core", f"{module}.py")) for module in MODULES]
        # Types are checked by `make types`, with the dependencies at hand. Here they need not be installed.
        options = ["--config-file=", "--ignore-missing-imports"]
        self.distribution.ext_modules = mypycify([*options, *sources], group_name="broker_core", debug_level="0")
        super().finalize_options()


if os.environ.get("EOS_KAFKA_COMPILED") == "1":
    setup(
        distclass=CompiledDistribution,
        cmdclass={"build_ext": BuildCompiled},
        setup_requires=["mypy[mypyc]>=2.4"],
    )
else:
    setup()
