from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

_M = TypeVar("_M")

class SlotsBuilder(type):
    # A message's class in one version.
    def __getitem__(cls: type[_M], version: int | None) -> type[_M]: ...

# What every message and every struct in one can do. The stubs of messages list fields only.
@dataclass_transform(kw_only_default=True)
class Schema(metaclass=SlotsBuilder):
    _struct: ClassVar[Any]
    fields: ClassVar[Mapping[str, Any]]
    tags: set[str] | None
    unknown_tags: dict[str, Any] | None
    def __iter__(self) -> Iterator[Any]: ...
    def to_dict(self, meta: bool | str = False, json: bool = True) -> dict[str, Any]: ...

class DataContainer(Schema):
    version: int | None = ...
    @classmethod
    def decode(cls, data: Any, **options: Any) -> Self: ...
    def encode(self, *args: Any, **options: Any) -> bytes: ...
