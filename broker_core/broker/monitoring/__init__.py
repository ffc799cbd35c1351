"""What a cluster shows of itself: counters and gauges, the newest requests, and views of transactions and partitions.

Owns: meters, metrics, the request log, and what inspection shows.
Asks: `broker`'s parts, the logs and coordinators; reads them and changes nothing.
Never: takes part in answering a request.
"""
