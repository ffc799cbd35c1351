"""The distributions of `python -m build` can be uploaded, are complete, and work in an empty environment."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import broker_core
from tests.support.distributions import DEADLINE_S, ROOT, build, copy_repository, files_of_the_repository, run

DATA = {".css", ".html", ".js", ".json", ".pyi", ".typed"}
# Builds share two cores with the other tests.
pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
# An address of the repository, as a release would give it.
HOME = "https://example.org/files"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository's files, without those of an earlier build."""
    return copy_repository(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def distributions(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the sdist, and the wheel from it."""
    return build(tree, tmp_path_factory.mktemp("dist"), EOS_KAFKA_HOME=HOME)


@pytest.fixture(scope="module")
def wheel(distributions: list[Path]) -> Path:
    [found] = [path for path in distributions if path.suffix == ".whl"]
    return found


def test_distributions_pass_twine_check(distributions: list[Path], tmp_path: Path) -> None:
    version = broker_core.__version__
    names = [f"eos_kafka-{version}-py3-none-any.whl", f"eos_kafka-{version}.tar.gz"]
    assert [path.name for path in distributions] == names
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions, cwd=tmp_path)


def test_sdist_contains_every_file_of_the_repository(distributions: list[Path]) -> None:
    """Its tests, documents and image can be made from it; only what git alone reads is left out."""
    [sdist] = [path for path in distributions if path.suffix == ".gz"]
    with tarfile.open(sdist) as packed:
        names = {each.name.partition("/")[2] for each in packed.getmembers() if each.isfile()}
    made = {name for name in names if name == "PKG-INFO" or name.startswith("eos_kafka.egg-info/")}
    assert names - made == set(files_of_the_repository()) - {".git-blame-ignore-revs"}


def test_the_license_is_named_as_pep_639_has_it(wheel: Path) -> None:
    metadata = HeaderParser().parsestr(metadata_of(wheel))
    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert metadata["License"] is None
    assert not [each for each in metadata.get_all("Classifier", []) if each.startswith("License ::")]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def test_wheel_contains_all_modules_and_data_files(wheel: Path) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in ("broker_core", "spark_eos")
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", *DATA}
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {Path(name).suffix for name in packed} >= DATA
    assert packed == wanted | {"pyspark_eos_kafka.py"}


def test_extras_bring_what_their_parts_need(wheel: Path) -> None:
    """An installation on a cluster replaces nothing of Spark's, and that of a Spark job has nothing of the broker's."""
    metadata = HeaderParser().parsestr(metadata_of(wheel))
    needed: dict[str, set[str]] = {extra: set() for extra in ["", *metadata.get_all("Provides-Extra", [])]}
    for line in metadata.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition("; extra == ")
        needed[marker.strip('"')].add(re.match(r"[\w-]+(\[\w+\])?", requirement)[0])  # type: ignore[index]
    assert needed[""] == {"kafka-python", "crc32c", "cramjam"}
    assert needed["cli"] == {"rich", "shtab", "textual"}
    assert needed["arrow"] == {"pyarrow", "numpy"}
    assert needed["spark"] == {"eos-kafka[arrow]", "pyspark", "pandas"}
    assert needed["broker"] == {"google-re2", "scramp", "asn1crypto"}
    assert needed["testing"] == {"eos-kafka[broker]", "confluent-kafka", "pytest"}
    # `spark` and `testing` bring `arrow` and `broker`; what `kerberos` needs is built by a C compiler.
    left_out = {"all", "arrow", "broker", "dev", "docs", "fuzz", "kerberos", ""}
    assert needed["all"] == {f"eos-kafka[{extra}]" for extra in needed if extra not in left_out}


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return packed.read(name).decode()


def test_links_of_the_description_lead_to_the_home(wheel: Path) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", metadata_of(wheel).partition("\n\n")[2])
    assert targets
    assert [target for target in targets if not target.startswith(f"{HOME}/")] == []


def test_a_distribution_works_without_its_sources(wheel: Path, tmp_path: Path) -> None:
    """This environment has the dependencies; the wheel, which is built from the sdist, has the packages."""
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(*pip, "--no-compile", "--target", installed, wheel, cwd=elsewhere)
    # Without site (-S), the sources of the development installation are not on the path.
    python = (sys.executable, "-S")
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    code = (
        "import broker_core, spark_eos, pyspark_eos_kafka\n"
        "with broker_core.EmbeddedBroker(topics={'orders': 1}) as kafka:\n"
        "    assert kafka.topics == {'orders': 1}, kafka.topics\n"
        "print(broker_core.__file__, spark_eos.__file__, pyspark_eos_kafka.__file__, sep='\\n')"
    )
    places = run(*python, "-c", code, cwd=elsewhere, PYTHONPATH=path).splitlines()
    assert [str(installed) in place for place in places] == [True] * 3
    for command in ("eos-kafka", "broker-core"):
        said = run(*python, installed / "bin" / command, "--version", cwd=elsewhere, PYTHONPATH=path)
        assert said.strip() == f"{command} {broker_core.__version__}"


def test_declared_options_and_the_home_are_read_from_a_zip(wheel: Path, tmp_path: Path) -> None:
    """Spark puts the archives of `--py-files` on the path as they are."""
    path = os.pathsep.join([str(wheel), sysconfig.get_path("purelib")])
    code = "from spark_eos.options import catalog, sink; print(catalog.__file__, sink.DEFAULT_PREFIX);"
    code += "from spark_eos import TopicError; print(*TopicError('No topic').__notes__)"
    options, error = run(sys.executable, "-S", "-c", code, cwd=tmp_path, PYTHONPATH=path).splitlines()
    assert options.split() == [f"{wheel}/spark_eos/options/catalog.py", "eos-kafka"]
    assert error == f"See {HOME}/docs/reference/errors.md#topicerror"


def test_compiled_build_refuses_an_editable_installation(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "editable_wheel"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=dict(os.environ) | {"EOS_KAFKA_COMPILED": "1"},
    )
    assert done.returncode == 1
    assert "EOS_KAFKA_COMPILED=1 cannot be used for an editable installation" in done.stderr
    assert not list(tree.rglob("*.so"))
