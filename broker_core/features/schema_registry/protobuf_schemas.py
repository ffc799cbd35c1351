"""Protobuf schemas: .proto files, or descriptors in Base64 as confluent-kafka's serializer sends them."""

import base64
import binascii

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.parsed_schema import ParsedSchema, Resolved, flat
from broker_core.features.schema_registry.protobuf_compatibility import Differences, Files
from broker_core.features.schema_registry.protobuf_parser import parse_proto
from broker_core.features.schema_registry.protobuf_text import to_text

# The name of a schema's file, which its text does not tell.
_FILE = "default"
# The files that every schema may import without a reference.
_KNOWN: dict[str, FileDescriptor] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}


class ProtobufSchema(ParsedSchema):
    """A .proto file and those it imports."""

    schema_type = "PROTOBUF"

    def __init__(self, text: str, resolved: Resolved = ()) -> None:
        self.files: Files = {}
        pool = DescriptorPool()
        for name, referenced in flat(resolved).items():
            self._add(pool, _descriptor(referenced.text, name))
        self.file = self._add(pool, _descriptor(text, _FILE))
        super().__init__(to_text(self.file))

    def can_read(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        found = Differences(writer.files, self.files).between(writer.file, self.file)
        return [
            f'{{errorType:"{kind}", description:"The schemas differ at path \'{path}\'"}}'
            for kind, path in found.incompatible()
        ]

    def formatted(self, form: str) -> str:
        """Return the text; as "serialized", the descriptor in Base64."""
        if form != "serialized":
            return self.text
        return base64.standard_b64encode(self.file.SerializeToString(deterministic=True)).decode("ascii")

    def _add(
        self, pool: DescriptorPool, file: descriptor_pb2.FileDescriptorProto
    ) -> descriptor_pb2.FileDescriptorProto:
        """Add a file with its imports to the pool, which checks it; return it with the full names of all types."""
        for name in file.dependency:
            if name not in self.files:
                if name not in _KNOWN:
                    raise InvalidSchema(f'Invalid schema of type PROTOBUF: no reference found for import "{name}"')
                known = descriptor_pb2.FileDescriptorProto()
                _KNOWN[name].CopyToProto(known)
                self._add(pool, known)
        found = descriptor_pb2.FileDescriptorProto()
        try:
            pool.AddSerializedFile(file.SerializeToString())
            pool.FindFileByName(file.name).CopyToProto(found)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from error
        self.files[file.name] = found
        return found


def _descriptor(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor that a text contains in Base64, or makes as a .proto file."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return parse_proto(text, name)
    if not file.name:
        # A short text may be Base64 by chance.
        return parse_proto(text, name)
    file.name = name
    file.ClearField("source_code_info")
    return file
