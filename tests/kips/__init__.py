"""The rules of each KIP through the wire protocol, without sockets, clocks or disks: one file per KIP."""
