"""Prove the rules of each KIP through the wire, without sockets, clocks or disks: one file a KIP."""
