"""The driver side of the sink: it takes micro-batches from prepared to visible.

Owns: the ownership of a query's driver id, the decision log, verification, completion, the sweep of orphans, preflight
checks.

Uses: `client` for the cluster; of the sink its cluster, messages and protocol.

Never: reads rows, or imports what only tasks need.
"""
