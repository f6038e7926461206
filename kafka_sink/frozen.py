"""`@frozen`: a dataclass whose fields are never reassigned, enforced by the type checker.

`dataclass(frozen=True)` enforces it at run time, at a cost: every field is set by a call of `object.__setattr__`. An
object of six fields takes three times as long to create.

The class itself is also created quickly. `dataclass` compiles up to eight methods per class, half a millisecond each
time: with a hundred such classes that was half of the import time of this package in a task of a new Python worker.
Here one method is compiled, and the others are closures over the fields. The data for `fields` and `replace` is made on
demand.

Not supported, and refused: base classes with fields of their own, `__post_init__`, `ClassVar`. Those are dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[T]) -> type[T]:
    annotations = dict(made.__annotations__)
    _check(made, annotations)
    space = {name: value for name, value in vars(made).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: space.pop(name) for name in annotations if name in space}
    shown = [name for name in annotations if getattr(defaults.get(name), "repr", True) is not False]
    own = {
        "__init__": _initialiser(tuple(annotations), defaults),
        "__repr__": _representer(shown),
        **_comparers(tuple(annotations)),
        "__match_args__": tuple(annotations),
        "__slots__": tuple(annotations),
        "__dataclass_fields__": _Fields(annotations, defaults),
    }
    metaclass: Any = type(made)
    remade: type[T] = metaclass(made.__name__, made.__bases__, {**own, **space})
    return remade


def _check(made: type, annotations: Mapping[str, str]) -> None:
    is_plain = not hasattr(made, "__post_init__") and not any("ClassVar" in str(kind) for kind in annotations.values())
    if not is_plain or any(hasattr(base, "__dataclass_fields__") for base in made.__bases__):
        raise TypeError(f"{made.__qualname__} needs more than @frozen can: make it a dataclass")


def _initialiser(names: tuple[str, ...], defaults: Mapping[str, Any]) -> Callable[..., None]:
    given, lines = ["self"], []
    space: dict[str, Any] = {"_UNSET": MISSING}
    for name in names:
        default, factory = defaults.get(name, MISSING), None
        if isinstance(default, Field):
            factory = None if default.default_factory is MISSING else default.default_factory
            default = default.default
        if factory is not None:
            space[f"_new_{name}"] = factory
            given.append(f"{name}=_UNSET")
            lines.append(f" self.{name} = _new_{name}() if {name} is _UNSET else {name}")
            continue
        if default is not MISSING:
            space[f"_of_{name}"] = default
        given.append(name if default is MISSING else f"{name}=_of_{name}")
        lines.append(f" self.{name} = {name}")
    exec(f"def __init__({', '.join(given)}):\n" + "\n".join(lines or [" pass"]), space)
    made: Callable[..., None] = space["__init__"]
    return made


def _comparers(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    values_of: Callable[[Any], Any] = attrgetter(*names) if names else lambda one: ()

    def __eq__(self: Any, other: object) -> Any:
        return values_of(self) == values_of(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values_of(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _representer(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


class _Fields:
    """The attribute by which `dataclasses` recognises a dataclass."""

    def __init__(self, annotations: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
        self._annotations = annotations
        self._defaults = defaults

    def __get__(self, one: object, kind: type) -> dict[str, Field[Any]]:
        twin = type(kind.__name__, (), {"__annotations__": dict(self._annotations), **self._defaults})
        found: dict[str, Field[Any]] = dataclass(twin).__dataclass_fields__  # type: ignore[attr-defined]
        kind.__dataclass_fields__ = found  # type: ignore[attr-defined]
        return found
