"""The monitoring of a cluster: its metrics, and views of its transactions and partitions.

Owns: metrics and inspection. The counters are in `broker.meters`, next to the code that increments them.
Uses: the parts of `broker`, the logs and coordinators; it reads them and changes nothing.
Never: takes part in answering a request.
"""
