"""Helpers that all test suites share: brokers, clients, Java tools, histories, waiting."""
