"""The schema registry of an embedded broker: the REST API of Confluent Schema Registry over the topic `_schemas`.

Owns: parsing and comparing of Avro, JSON and Protobuf schemas; subjects, versions and ids; the HTTP server.
Uses: the records of `_schemas`, which it writes as a producer and reads like a consumer.
Never: state of its own: all of it is derived from the topic, so that snapshots and data folders contain it.
"""
