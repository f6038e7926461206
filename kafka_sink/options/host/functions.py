"""User functions given as `module:function` in an option: imported where they are used, driver or executor."""

from __future__ import annotations

import importlib
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import FUNCTION_UNUSABLE


def load_user_function(name: str, option: str) -> Any:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{option}={name} cannot be imported here ({error}): it must be installed, or given with --py-files, on "
            "the driver and on each executor",
            FUNCTION_UNUSABLE,
        ) from error
    except Exception as error:
        raise ConfigError(
            f"{option}={name} cannot be imported here: its module raised {type(error).__name__}", FUNCTION_UNUSABLE
        ) from error
    if not callable(found):
        raise ConfigError(f"{option}={name} is no function but a {type(found).__name__}", FUNCTION_UNUSABLE)
    return found
