"""The export of metrics: a process of its own for each driver, and what other processes send to it.

Spark runs a query's source and the sink's commits in Python processes that it starts and ends as it likes. So no such
process serves metrics: the first one starts an exporter, which ends with the driver, and all of them send it what they
count.

Owns: the exporter process, its port, textfile and OpenTelemetry output, and the way to it.

Uses: `metrics`, `options.metrics`.

Never: waits in a micro-batch; a query goes on without its metrics.
"""
