"""One partition's log: its batches on disk and all that follows from them.

Owns: segments and their three indexes, producer state and its snapshots, the four marks of a log (log start offset,
    last stable offset, high watermark, log end offset), leader epochs, retention, compaction, and recovery after any
    crash.
Uses: `records` for what is in a batch, `ports.Storage` for files; the caller for the time.
Never: knows topics, requests, coordinators or other partitions; its callers have authorized the client already.
"""
