"""The values of committed offsets: requests and answers, the store of one partition, and the format of records.

Owns: the store of committed and pending offsets, and their record format.
Uses: `modern_records` for tagged fields; `offset_commits` beside this package checks who may commit, and records it.
Never: verifies a transaction; the broker has verified it before the call.
"""
