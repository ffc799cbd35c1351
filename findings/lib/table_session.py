"""A session of Spark with Delta Lake and Iceberg, from the jars that a script has put into the folder `tables`."""

import glob
import os

from pyspark.sql import SparkSession
from spark_session import session


def table_session() -> SparkSession:
    """Return a session that has Delta as its own catalog and Iceberg as the catalog `iceberg`."""
    here = os.getcwd()
    # Spark has the other jars itself.
    jars = [
        each for name in ("delta", "iceberg", "unitycatalog") for each in glob.glob(f"{here}/tables/jars/{name}-*.jar")
    ]
    return session(
        "local[1]",
        {
            "spark.jars": ",".join(jars),
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.iceberg.type": "hadoop",
            "spark.sql.catalog.iceberg.warehouse": f"{here}/iceberg",
        },
    )
