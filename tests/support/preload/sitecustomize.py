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
    import encodings.idna  # noqa: F401

    import pyarrow.compute  # noqa: F401
    import pyspark.worker  # noqa: F401

    import spark_eos.datasource
    import spark_eos.sink.factory
    import spark_eos.sink.spark_writers
    import spark_eos.source.spark_readers  # noqa: F401

    # For workers with rows or messages: pyarrow imports pandas at its first conversion.
    if not _arguments.endswith(("lookup_data_sources", "create_data_source", "write_into_data_source")):
        import pandas  # noqa: F401

    if "pyspark.sql" in _arguments:
        import importlib

        importlib.import_module(sys.orig_argv[-1])
    # Spark invalidates the caches of imports in each worker. In Python 3.13 a zip that was searched before is then not
    # in what `pkgutil.iter_modules` reads, and Spark's look-up of data sources ends with a KeyError.
    for _path, _finder in list(sys.path_importer_cache.items()):
        if isinstance(_finder, zipimport.zipimporter):
            del sys.path_importer_cache[_path]
    # A worker collects garbage after every task; it need not visit, and so copy, permanent objects each time.
    gc.collect()
    gc.freeze()
