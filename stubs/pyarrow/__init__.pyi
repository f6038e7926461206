# pyarrow has no type information of its own. Names for annotations, without any checking behind them.

from typing import Any, TypeAlias

Array: TypeAlias = Any
ChunkedArray: TypeAlias = Any
RecordBatch: TypeAlias = Any
Table: TypeAlias = Any
Schema: TypeAlias = Any
Field: TypeAlias = Any
DataType: TypeAlias = Any
StructType: TypeAlias = Any
Buffer: TypeAlias = Any

class ArrowException(Exception): ...

def __getattr__(name: str) -> Any: ...
