"""`@frozen`: a dataclass whose fields are set once and never again, which the type checker sees to.

`dataclass(frozen=True)` sees to it at run time, and pays for it at each making: every field goes through a call of
`object.__setattr__`. An object of six fields takes three times as long to make. What is made once per batch, request
or turn, by the thousand in a second, is `frozen` in this sense; everything else is frozen in the usual one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[T]) -> type[T]:
    return dataclass(slots=True, unsafe_hash=True)(made)
