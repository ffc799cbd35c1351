"""The public names: their modules, their import cost, and that documents and examples use no others."""

import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

import broker_core
from broker_core import version

ROOT = Path(__file__).parents[2]


def _in_new_interpreter(code: str, *options: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_importing_the_packages_imports_nothing_else() -> None:
    code = """
        import json, sys
        before = set(sys.modules)
        import broker_core, spark_eos
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    assert json.loads(_in_new_interpreter(re.sub(r"\n\s+", "\n", code))) == [
        "broker_core",
        "broker_core.version",
        "spark_eos",
    ]


def test_the_version_has_one_source(tmp_path: Path) -> None:
    """A checkout has a version even where the interpreter finds no distribution."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert broker_core.__version__ == version.__version__
    assert settings["metadata"]["version"] == "attr: broker_core.version.__version__"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import spark_eos; print(spark_eos.__version__)"
    assert _in_new_interpreter(code, "-I", "-S", cwd=tmp_path).strip() == broker_core.__version__
