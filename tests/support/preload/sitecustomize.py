"""Failpoints, and imports that Spark's Python workers need, made once in the daemon that forks them.

Python runs this module at startup because its folder is on the path. The imports save a second for every worker,
and the crash tests start dozens of them.
"""

import gc
import os
import sys
import zipimport

if "SPARK_EOS_FAILPOINTS" in os.environ:
    from tests.support.spark_eos.failpoints import install

    install(os.environ["SPARK_EOS_FAILPOINTS"])

_arguments = " ".join(sys.orig_argv)

if "-m pyspark.daemon" in _arguments:
    import importlib

    # What the workers of each of Spark's programs need; those of tasks have rows, and pyarrow imports pandas then.
    _writers = (
        *("spark_eos.sink.spark_writers", "spark_eos.sink.factory", "spark_eos.sink.driver.preflight"),
        *("spark_eos.client.kafka_client", "encodings.idna"),
    )
    _commits = (*_writers, "spark_eos.sink.driver.committer")
    _readers = ("spark_eos.source.spark_readers", "encodings.idna")
    _program = sys.orig_argv[-1]
    _modules = {
        "lookup_data_sources": (),
        "create_data_source": ("spark_eos.column_libraries", "spark_eos.options.source", "spark_eos.source.schema"),
        "write_into_data_source": _writers,
        "commit_data_source_write": _commits,
        "python_streaming_sink_runner": _commits,
        "plan_data_source_read": _readers,
        "data_source_pushdown_filters": _readers,
    }.get(_program.rpartition(".")[2], (*_commits, *_readers, "pyarrow.compute", "pandas", "pyspark.worker"))
    for _module in (*([_program] if "pyspark.sql" in _program else ()), "spark_eos.datasource", *_modules):
        importlib.import_module(_module)
    # Spark invalidates the caches of imports in each worker. In Python 3.13 a zip that was searched before is then not
    # in what `pkgutil.iter_modules` reads, and Spark's look-up of data sources ends with a KeyError.
    for _path, _finder in list(sys.path_importer_cache.items()):
        if isinstance(_finder, zipimport.zipimporter):
            del sys.path_importer_cache[_path]
    # A worker collects garbage after every task; it need not visit, and so copy, permanent objects each time.
    gc.collect()
    gc.freeze()
