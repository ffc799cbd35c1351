"""Source and sink on clusters of Spark, with the package shipped as users do: `python -m tests.clusters`."""
