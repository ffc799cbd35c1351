"""What a cluster shows of itself: its metrics, and views of its transactions and partitions.

Owns: metrics, and what inspection shows. The counts are kept below, where things happen: `broker.meters`.
Asks: `broker`'s parts, the logs and coordinators; reads them and changes nothing.
Never: takes part in answering a request.
"""
