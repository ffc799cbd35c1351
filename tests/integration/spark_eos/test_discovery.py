"""The imports of Spark's search for data sources."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_discovery_imports_no_heavy_modules() -> None:
    """Every Spark session imports the module, whether it reads Kafka or not."""
    code = "import sys, pyspark_eos_kafka; print([m for m in sys.modules if m in ('pyarrow', 'numpy', 'kafka')])"
    plain = subprocess.run(
        [sys.executable, "-c", f"import sys, pyspark.sql.datasource; before = set(sys.modules); {code}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    baseline = subprocess.run(
        [sys.executable, "-c", "import sys, pyspark.sql.datasource; "
         "print([m for m in sys.modules if m in ('pyarrow', 'numpy', 'kafka')])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert plain.stdout == baseline.stdout
