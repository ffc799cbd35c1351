"""Clusters, coordinators and logs that tests drive without sockets or clocks."""
