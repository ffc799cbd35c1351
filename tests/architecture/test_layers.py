"""The layers of the packages: allowed imports, outside dependencies, and no cyclic imports."""

import pytest

from tests.support.architecture import (
    PACKAGES,
    ROOT,
    TOPS,
    Module,
    check_cycles,
    check_docstrings,
    check_layers,
    check_names,
    check_outside,
    check_sizes,
    read_modules,
)
from tests.support.layers import ALLOWED, LAYERS, OUTSIDE


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return list(read_modules(ROOT, *TOPS))


def test_the_packages_are_read(modules: list[Module]):
    names = {module.name for module in modules}
    assert {"broker_core.errors", "broker_core.log", "spark_eos.errors"} <= names


def test_packages_import_only_what_the_table_allows(modules: list[Module]):
    assert check_layers(modules, ALLOWED, TOPS) == []


def test_neither_files_nor_packages_import_each_other(modules: list[Module]):
    assert check_cycles(modules) == []


def test_external_modules_are_used_only_where_the_table_allows(modules: list[Module]):
    assert check_outside(modules, OUTSIDE, TOPS) == []


def test_every_module_has_a_docstring_and_every_package_a_responsibility(modules: list[Module]):
    assert check_docstrings(modules) == []


def test_every_package_directory_has_an_init():
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_files_and_functions_are_small():
    assert check_sizes(read_modules(ROOT, *TOPS, "examples")) == []


def test_names_are_meaningful(modules: list[Module]):
    assert check_names(modules) == []


def test_the_table_imports_downwards_only():
    layer_of = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    # A constant in a file that imports nothing until a public name is used.
    layer_of["broker_core.__version__"] = -1
    upwards = [
        f"{package} -> {other}"
        for package, allowed in ALLOWED.items()
        for other in allowed
        if layer_of[other] >= layer_of[package]
    ]
    assert upwards == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("broker_core.log", "broker_core.coordinator"),
        ("broker_core.server", "broker_core.simulation"),
        ("spark_eos.sink", "spark_eos.source"),
    ],
)
def test_packages_of_one_layer_are_independent(one: str, other: str):
    assert other not in ALLOWED[one]
    assert one not in ALLOWED[other]


def test_broker_core_does_not_import_spark_eos_which_imports_little_of_it():
    upwards = {
        package: allowed
        for package, allowed in ALLOWED.items()
        if package.startswith("broker_core") and any(not name.startswith("broker_core.") for name in allowed)
    }
    shared = {
        name
        for package, allowed in ALLOWED.items()
        if package.startswith("spark_eos.") and package != "spark_eos.__init__"
        for name in allowed
        if name.startswith("broker_core")
    }
    assert upwards == {}
    # The version, vocabulary, the addresses of errors, Java's properties files, login modules, key stores and cipher
    # suites, and the bytes of batches and messages.
    words = {"broker_core.__version__", "broker_core.errors", "broker_core.errors_page", "broker_core.types"}
    javas = {f"broker_core.{name}" for name in ("cipher_suites", "jaas", "java_stores", "properties")}
    assert shared == words | javas | {"broker_core.records", "broker_core.wire"}
