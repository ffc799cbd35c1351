"""The compiled build beside the sources: the broker's tests on it, and the traces of simulated worlds on both."""
