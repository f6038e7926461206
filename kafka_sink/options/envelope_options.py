"""What stands around the value of every row: constant headers, the attributes of a CloudEvent, and a trace."""

from __future__ import annotations

from dataclasses import dataclass

BINARY_MODE, STRUCTURED_MODE = "binary", "structured"
# In front of the names of columns that only attributes are made of, on their way through a task.
ATTRIBUTE_COLUMN = "cloudevents."
# The header that W3C Trace Context names, and the column of its texts on the way through a task.
TRACEPARENT = "traceparent"
HEADER, CLOUDEVENTS, COLUMN = "header.", "cloudevents", ".column"


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """Texts may have placeholders in them. `attributes` come with a text, `attribute_columns` with a column's name.

    `mode` None: no CloudEvents.
    """

    headers: tuple[tuple[str, str], ...] = ()
    mode: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    attribute_columns: tuple[tuple[str, str], ...] = ()
    # What the data is, if no attribute datacontenttype says so.
    content_type: str | None = None
    # The values are JSON of the sink's own making: nobody has to look whether they are.
    has_own_json: bool = False
    traceparent_column: str | None = None
    # Records without a traceparent get that of the task's span.
    has_traceparent_of_task: bool = False


def is_envelope_option(name: str) -> bool:
    return name.startswith((HEADER, f"{CLOUDEVENTS}.")) or name == CLOUDEVENTS
