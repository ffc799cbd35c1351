"""The version, which setup.cfg takes from here."""

__version__ = "0.1.0"
