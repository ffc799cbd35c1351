"""The settings of Apache Kafka 4.4 and of brokers here, as data: one line of `settings.json` for each.

Owns: the declarations, how the text of a value is read, checked and shown, and the fields of settings objects.
Uses: numbers as Java reads them, and errors.
Never: knows a broker, reads a user's file, or changes a setting.
"""
