"""Suites do not depend on each other: shared code is in tests/support, and unit tests mirror the packages."""

from pathlib import Path

import pytest

from tests.support.architecture import PACKAGES, ROOT, TOPS, Module, check_outside, read_modules
from tests.support.layers import OUTSIDE

TESTS = ROOT / "tests"
# Programs with tests; every other suite contains only tests.
PROGRAMS = frozenset(
    {
        "benchmarks",
        "clusters",
        "compatibility",
        "compiled",
        "crash",
        "explorer",
        "foreign",
        "fuzz",
        "history",
        "interop",
        "simulation",
    }
)
# The explorer replays its stories in the simulation.
ALLOWED = frozenset({("tests.explorer", "tests.simulation")})
# Modules that open connections or start processes.
NOT_IN_UNIT_TESTS = ("confluent_kafka", "multiprocessing", "socket", "subprocess", "broker_core.embedded")


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return list(read_modules(ROOT, "tests"))


def suite_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def is_collected(name: str) -> bool:
    """Return whether pytest collects this module."""
    last = name.rpartition(".")[2]
    return last == "conftest" or last.startswith("test_")


def imports(module: Module) -> list[str]:
    return [use.name for use in module.uses if use.is_import]


def test_suite_imports_only_itself_and_support(modules: list[Module]):
    found = [
        f"{module.name} imports {name}"
        for module in modules
        for name in imports(module)
        if name.startswith("tests.") and suite_of(name) not in (suite_of(module.name), "tests.support")
        if (suite_of(module.name), suite_of(name)) not in ALLOWED
    ]
    assert found == []


def test_simulated_world_uses_no_clock_socket_or_file(modules: list[Module]):
    """Its one source of chance is a seeded `Random`: nothing else may decide what happens."""
    world = [module for module in modules if suite_of(module.name) == "tests.support" and ".simulated" in module.name]
    assert len(world) > 5
    seeded = {**OUTSIDE, "random.Random": OUTSIDE["random.Random"] | {module.name for module in world}}
    assert check_outside(world, seeded, (*TOPS, "tests")) == []


def test_no_file_imports_tests_or_a_conftest(modules: list[Module]):
    not_to_import = {module.name for module in modules if is_collected(module.name)}
    found = [
        f"{module.name} imports {name}"
        for module in modules
        for name in imports(module)
        if not_to_import & {name, name.rpartition(".")[0]}
    ]
    assert found == []


def test_helpers_are_in_support():
    suites = [folder for folder in TESTS.iterdir() if folder.is_dir() and folder.name not in PROGRAMS | {"support"}]
    helpers = [
        str(path.relative_to(ROOT))
        for suite in suites
        for path in suite.rglob("*.py")
        if not path.name.startswith("test_") and path.name not in ("__init__.py", "conftest.py")
    ]
    assert helpers == []


def test_every_test_is_in_a_suite_and_none_in_support():
    assert [path.name for path in (*TESTS.glob("test_*.py"), *TESTS.glob("support/**/test_*.py"))] == []


def test_unit_test_directories_match_packages():
    folders = {path.parent.relative_to(TESTS / "unit") for path in (TESTS / "unit").rglob("test_*.py")} - {Path()}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").exists()] == []
    assert {folder.parts[0] for folder in folders} == set(PACKAGES)


def test_unit_tests_import_no_network_modules(modules: list[Module]):
    found = [
        f"{module.name} imports {name}"
        for module in modules
        if module.name.startswith("tests.unit.") and not module.name.endswith(".conftest")
        for name in imports(module)
        if any(name == refused or name.startswith(f"{refused}.") for refused in NOT_IN_UNIT_TESTS)
    ]
    assert found == []
