"""The public names: their modules, their import cost, and that documents and examples use no others."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import broker_core
import spark_eos
from tests.support.documents import pages

ROOT = Path(__file__).parents[2]
PACKAGES = (broker_core, spark_eos)
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# Modules that documents may name beside the two packages.
PUBLIC_MODULES = {"broker_core.aio", "broker_core.pytest_plugin"}
# Words that documents write after a package's name and that are not Python: files and metrics.
_DOTTED = re.compile(r"(?<![\w/])((?:broker_core|spark_eos)(?:\.[A-Za-z_]\w*)+)(?![\w/])")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.__name__)
def test_every_public_name_exists(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    assert len(set(package.__all__)) == len(package.__all__)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.__name__)
def test_private_name_raises_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Cluster'"):
        _ = package.Cluster


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.__name__)
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        node.module: tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert imported == package._MODULES
    assert {name for names in imported.values() for name in names} | {"__version__"} == set(package.__all__)


def _is_public(module: str, name: str) -> bool:
    return module in PUBLIC_MODULES or (
        module in ("broker_core", "spark_eos")
        and (name in importlib.import_module(module).__all__ or f"{module}.{name}" in PUBLIC_MODULES)
    )


def _foreign_imports(code: str) -> Iterator[str]:
    """Name the imports from the two packages that are not public."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found = [(alias.name, "__version__") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in found:
            if module.split(".")[0] in ("broker_core", "spark_eos") and not _is_public(module, name):
                yield f"{module}.{name}"


def test_code_in_documents_imports_public_names_only() -> None:
    blocks = [(page.name, block) for page in pages() for block in page.blocks if block.language == "python"]
    assert [(name, found) for name, block in blocks for found in _foreign_imports(block.code)] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda each: str(each.relative_to(ROOT)))
def test_example_imports_public_names_only(path: Path) -> None:
    assert list(_foreign_imports(path.read_text(encoding="utf-8"))) == []


def test_readme_names_no_internal_module() -> None:
    named = set(_DOTTED.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert sorted(each for each in named if not _is_public(*each.split(".")[:2])) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from broker_core.errors import KafkaError", ["broker_core.errors.KafkaError"]),
        ("import spark_eos.sink", ["spark_eos.sink.__version__"]),
        ("from broker_core import Cluster", ["broker_core.Cluster"]),
        ("from broker_core import EmbeddedBroker, Hold\nimport spark_eos\nimport os.path", []),
    ],
)
def test_internal_import_is_detected(code: str, found: list[str]) -> None:
    assert list(_foreign_imports(code)) == found
