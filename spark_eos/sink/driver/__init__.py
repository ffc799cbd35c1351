"""Take micro-batches from prepared to visible, on the driver.

Owns: who is the driver of a query, the decision log, verification, completion, the sweep of orphans, preflight checks.
Asks: `client` for the cluster; of the sink its ports, messages, decisions and recovery.
Never: reads rows, or imports what only tasks need.
"""
