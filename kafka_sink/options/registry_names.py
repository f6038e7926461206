"""Which options belong to the schema registry: told by their names, so that a write without one loads no more of it."""

from __future__ import annotations

REGISTRY = "schema.registry."
SSL = f"{REGISTRY}ssl."
SIDES = ("value", "key")

# Confluent's clients take these with the prefix and without.
BARE = ("basic.auth.", "bearer.auth.", "latest.cache.", "http.connect.", "http.read.")
_OF_BOTH_SIDES = frozenset({"auto.register.schemas", "use.latest.version", "normalize.schemas"})
_OF_ONE_SIDE = tuple(f"{side}.{part}" for side in SIDES for part in ("schema", "schema.", "subject."))


def is_registry_option(name: str) -> bool:
    if name.startswith((REGISTRY, *BARE)) or name in _OF_BOTH_SIDES:
        return True
    return any(name == part or (part.endswith(".") and name.startswith(part)) for part in _OF_ONE_SIDE)
