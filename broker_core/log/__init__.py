"""One partition's log: its batches on disk and the state derived from them.

Owns: segments and their three indexes, producer state and its snapshots, the four offsets of a log (log start offset,
    last stable offset, high watermark, log end offset), leader epochs, retention, compaction, and recovery after any
    crash.
Uses: `records` for the content of batches, `ports.Storage` for files; its caller passes the time.
Never: uses topics, requests, coordinators or other partitions; its callers authorize the client.
"""
