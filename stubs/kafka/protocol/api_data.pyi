from typing import Any, ClassVar, Self

from kafka.protocol.data_container import Schema

class ApiData(Schema):
    version: int | None = ...
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    def encode(self, version: int | None = None, header: bool = True, framed: bool = False) -> bytes: ...
    @classmethod
    def decode(cls, data: Any, version: int | None = None, header: bool = True, framed: bool = False) -> Self: ...
