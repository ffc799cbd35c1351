"""confluent-kafka's serializers through an embedded broker and its registry: Avro, JSON Schema and Protobuf."""

import json
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry", reason="needs confluent-kafka[avro,json,protobuf]")

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

pytestmark = pytest.mark.confluent

DEADLINE_S = 60
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def registry(kafka) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": kafka.schema_registry_url, "timeout": DEADLINE_S})


@pytest.fixture
def through(kafka):
    """Return what a consumer reads after a producer has written some values with these serializers."""

    def through(serialize: Any, deserialize: Any, values: list[Any]) -> list[Any]:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for value in values:
            producer.produce("orders", value=serialize(value, VALUE))
        assert producer.flush(DEADLINE_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe(["orders"])
            found: list[Any] = []
            kafka.wait_for(lambda: found.extend(consumer.consume(10, 0.2)) or len(found) >= len(values), DEADLINE_S)
            assert [each.error() for each in found] == [None] * len(values)
            return [deserialize(each.value(), VALUE) for each in found]
        finally:
            consumer.close()

    return through


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
ITEM = {"name": "item", "type": "string", "default": "tea"}


def test_avro_records_are_produced_and_consumed(registry, through):
    values = [{"id": 1, "item": "ü"}, {"id": 2**40, "item": ""}]
    assert through(AvroSerializer(registry, avro(ID, ITEM)), AvroDeserializer(registry), values) == values
    assert registry.get_subjects() == ["orders-value"]


def test_avro_schemas_evolve(kafka, registry, through):
    old = AvroSerializer(registry, avro(ID))
    new = AvroSerializer(registry, avro(ID, ITEM))
    reader = AvroDeserializer(SchemaRegistryClient({"url": kafka.schema_registry_url}), avro(ID, ITEM))
    mixed = [(old, {"id": 1}), (new, {"id": 2, "item": "x"})]
    found = through(lambda value, context: value[0](value[1], context), reader, mixed)
    assert found == [{"id": 1, "item": "tea"}, {"id": 2, "item": "x"}]
    assert registry.get_versions("orders-value") == [1, 2]
    refused = AvroSerializer(registry, avro(ID, {"name": "price", "type": "long"}))
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as error:
        refused({"id": 3, "price": 1}, VALUE)
    assert (error.value.http_status_code, error.value.error_code) == (409, 40901)


def test_avro_primitives_and_other_subject_names(registry, through):
    from confluent_kafka.schema_registry import record_subject_name_strategy

    by_record = AvroSerializer(registry, avro(ID), conf={"subject.name.strategy": record_subject_name_strategy})
    assert through(by_record, AvroDeserializer(registry), [{"id": 1}]) == [{"id": 1}]
    text = AvroSerializer(registry, '"string"')
    assert AvroDeserializer(registry)(text("ü", VALUE), VALUE) == "ü"
    assert registry.get_subjects() == ["orders-value", "shop.Order"]


def test_avro_references(registry, through):
    customer = {
        "type": "record",
        "name": "Customer",
        "namespace": "shop",
        "fields": [{"name": "name", "type": "string"}],
    }
    registry.register_schema("customers", Schema(json.dumps(customer), "AVRO"))
    text = avro(ID, {"name": "customer", "type": "shop.Customer"})
    schema = Schema(text, "AVRO", [SchemaReference("shop.Customer", "customers", 1)])
    value = {"id": 1, "customer": {"name": "n"}}
    assert through(AvroSerializer(registry, schema), AvroDeserializer(registry), [value]) == [value]


def test_the_latest_schema_is_used_without_registering(registry, through):
    registry.register_schema("orders-value", Schema(avro(ID), "AVRO"))
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    serializer = AvroSerializer(registry, conf=conf)
    assert through(serializer, AvroDeserializer(registry), [{"id": 5}]) == [{"id": 5}]
    lookup = AvroSerializer(registry, avro(ITEM), conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError, match="Schema not found"):
        lookup({"item": "x"}, VALUE)


def json_schema(*names: str, **more: Any) -> str:
    properties = {name: {"type": "integer"} for name in names}
    return json.dumps(
        {"title": "Order", "type": "object", "properties": properties, "additionalProperties": False, **more}
    )


def test_json_documents_are_produced_and_consumed(registry, through):
    text = json_schema("id", "count")
    values = [{"id": 1}, {"id": 2, "count": 3}]
    assert (
        through(JSONSerializer(text, registry), JSONDeserializer(text, schema_registry_client=registry), values)
        == values
    )


def test_json_schemas_evolve(registry):
    JSONSerializer(json_schema("id"), registry)({"id": 1}, VALUE)
    JSONSerializer(json_schema("id", "count"), registry)({"id": 1}, VALUE)
    assert registry.get_versions("orders-value") == [1, 2]
    refused = JSONSerializer(json_schema("id", "count", required=["id"]), registry)
    with pytest.raises(SchemaRegistryError, match="REQUIRED_ATTRIBUTE_ADDED") as error:
        refused({"id": 1}, VALUE)
    assert error.value.http_status_code == 409


def test_json_references(registry, through):
    item = {"$id": "http://shop/item.json", "type": "object", "properties": {"name": {"type": "string"}}}
    registry.register_schema("items", Schema(json.dumps(item), "JSON"))
    text = json.dumps({"title": "Order", "type": "object", "properties": {"item": {"$ref": "http://shop/item.json"}}})
    schema = Schema(text, "JSON", [SchemaReference("http://shop/item.json", "items", 1)])
    value = {"item": {"name": "tea"}}
    deserializer = JSONDeserializer(schema, schema_registry_client=registry)
    assert through(JSONSerializer(schema, registry), deserializer, [value]) == [value]


def message_class(fields: list[tuple[str, int, int]], *, imports: bool = False) -> Any:
    """Return a class of messages as protoc would generate it: names of fields with numbers and types."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for name, number, kind in fields:
        message.field.add(name=name, number=number, type=kind, label=1)
    if imports:
        pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
        item.message_type.add(name="Item").field.add(name="name", number=1, type=TEXT, label=1)
        pool.Add(item)
        file.dependency.extend(["item.proto", "google/protobuf/timestamp.proto"])
        message.field.add(name="item", number=20, type=11, label=1, type_name=".shop.Item")
        message.field.add(name="at", number=21, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


NUMBER, TEXT = 3, 9
CONF = {"use.deprecated.format": False}


def test_protobuf_messages_are_produced_and_consumed(registry, through):
    order = message_class([("id", 1, NUMBER), ("item", 2, TEXT)])
    values = [order(id=1, item="ü"), order()]
    found = through(ProtobufSerializer(order, registry, CONF), ProtobufDeserializer(order, CONF, registry), values)
    assert found == values
    assert "message Order {" in registry.get_latest_version("orders-value").schema.schema_str


def test_protobuf_schemas_evolve(registry, through):
    old, new = message_class([("id", 1, NUMBER)]), message_class([("id", 1, NUMBER), ("item", 2, TEXT)])
    mixed = [old(id=1), new(id=2, item="x")]
    serializers = {type(each): ProtobufSerializer(type(each), registry, CONF) for each in mixed}
    reader = ProtobufDeserializer(new, CONF, registry)
    found = through(lambda value, context: serializers[type(value)](value, context), reader, mixed)
    assert [(each.id, each.item) for each in found] == [(1, ""), (2, "x")]
    refused = message_class([("id", 1, TEXT), ("item", 2, TEXT)])
    with pytest.raises(SchemaRegistryError, match="FIELD_SCALAR_KIND_CHANGED") as error:
        ProtobufSerializer(refused, registry, CONF)(refused(), VALUE)
    assert error.value.http_status_code == 409


def test_protobuf_imports_become_references(registry, through):
    order = message_class([("id", 1, NUMBER)], imports=True)
    value = order(id=1)
    value.item.name, value.at.seconds = "tea", 7
    found = through(ProtobufSerializer(order, registry, CONF), ProtobufDeserializer(order, CONF, registry), [value])
    assert (found[0].item.name, found[0].at.seconds) == ("tea", 7)
    assert registry.get_subjects() == ["item.proto", "orders-value"]
    references = registry.get_latest_version("orders-value").schema.references
    assert [(each.name, each.subject, each.version) for each in references] == [("item.proto", "item.proto", 1)]


def test_a_protobuf_schema_registered_as_text_is_used(registry):
    registry.register_schema(
        "orders-value", Schema('syntax = "proto3"; package shop; message Order { int64 id = 1; }', "PROTOBUF")
    )
    order = message_class([("id", 1, NUMBER)])
    conf = CONF | {"auto.register.schemas": False}
    data = ProtobufSerializer(order, registry, conf)(order(id=3), VALUE)
    assert ProtobufDeserializer(order, CONF, registry)(data, VALUE).id == 3


def test_the_client_covers_the_rest(registry):
    schema = Schema(avro(ID), "AVRO")
    assert registry.register_schema("s", schema, normalize_schemas=True) == 1
    assert registry.lookup_schema("s", schema).version == 1
    guid = registry.get_version("s", 1).guid
    assert json.loads(registry.get_schema_by_guid(guid).schema_str) == json.loads(registry.get_schema(1).schema_str)
    assert registry.test_compatibility("s", Schema('"int"', "AVRO")) is False
    assert registry.test_compatibility_all_versions("s", schema) is True
    assert [each.subject for each in registry.get_schema_versions(1)] == ["s"]
    assert registry.get_subjects_by_schema_id(1) == ["s"]
    assert registry.get_referenced_by("s", 1) == []
    assert registry.get_contexts() == ["."]
    assert registry.set_compatibility("s", "FULL")["compatibility"] == "FULL"
    assert registry.get_config("s").compatibility_level.value == "FULL"
    assert registry.delete_config("s").compatibility_level.value == "FULL"
    assert registry.update_global_mode("READONLY") == "READONLY"
    assert registry.get_global_mode() == "READONLY"
    assert registry.update_global_mode("READWRITE") == "READWRITE"
    assert registry.update_mode("s", "READONLY") == registry.get_mode("s") == registry.delete_mode("s") == "READONLY"
    assert registry.delete_version("s", 1) == 1
    assert registry.delete_subject("s", permanent=True) == [1]
