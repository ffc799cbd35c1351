"""The names that some versions of PySpark lack, in the absence of these names."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark.sql.datasource
import pytest
from pyspark.sql.datasource import DataSource

import pyspark_eos_kafka
from spark_eos import EosKafkaDataSource, spark_api

NEWEST, SPARK_4_2 = "pyspark.sql.streaming.datasource", "pyspark.sql.datasource"


def loaded(module: ModuleType) -> Any:
    """Load the module again, beside the one in use."""
    spec = importlib.util.spec_from_file_location("loaded_again", Path(str(module.__file__)))
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


def test_each_name_matches_the_installed_pyspark() -> None:
    for name in spark_api.__all__:
        assert getattr(spark_api, name).__module__ in (NEWEST, SPARK_4_2)


def test_reader_defines_read_limits_where_pyspark_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NEWEST, None)
    api = loaded(spark_api)
    assert api.ReadMaxRows(5).max_rows == 5
    assert api.ReadMinRows(7).min_rows == 7
    assert isinstance(api.ReadAllAvailable(), api.ReadLimit)
    assert not issubclass(pyspark.sql.datasource.DataSourceStreamReader, api.SupportsTriggerAvailableNow)


def test_streaming_writer_accepts_arrow_batches_through_the_batch_writer_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of PySpark 4.0 looks for `DataSourceArrowWriter` only."""
    monkeypatch.delattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")
    monkeypatch.delattr(pyspark.sql.datasource, "Filter")
    api = loaded(spark_api)
    assert issubclass(api.DataSourceStreamArrowWriter, pyspark.sql.datasource.DataSourceArrowWriter)
    assert issubclass(api.DataSourceStreamArrowWriter, pyspark.sql.datasource.DataSourceStreamWriter)
    assert not isinstance(pyspark.sql.datasource.EqualTo(("a",), 1), api.Filter)


def test_modules_are_importable_without_python_data_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SPARK_4_2, None)
    monkeypatch.setitem(sys.modules, NEWEST, None)
    assert set(spark_api.__all__) <= set(vars(loaded(spark_api)))


def test_failed_import_is_reported_when_the_format_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark imports the module when it searches for data sources; an error there would hide other data sources."""
    monkeypatch.setitem(sys.modules, "spark_eos.datasource", None)
    source = loaded(pyspark_eos_kafka).DefaultSource
    assert issubclass(source, pyspark.sql.datasource.DataSource)
    assert source.name() == "eos-kafka"
    for use in ("schema", "reader", "streamReader", "writer", "streamWriter"):
        with pytest.raises(
            ImportError, match=r"eos-kafka cannot be imported: .*spark_eos\.datasource.* Remedy: install"
        ):
            getattr(source({}), use)()


# The class that Spark asks


def test_datasource_module_exports_the_class_spark_imports() -> None:
    assert pyspark_eos_kafka.DefaultSource is EosKafkaDataSource
    assert issubclass(EosKafkaDataSource, DataSource)
    assert EosKafkaDataSource.name() == "eos-kafka"
