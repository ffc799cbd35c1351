"""Committed offsets: commit, fetch, delete and expire them, inside transactions and outside.

Owns: the store of committed and pending offsets, their record format and their retention.
Uses: a recorder to append records; the groups of both protocols who may commit.
Never: verifies a transaction; the broker has done so before it asks here.
"""
