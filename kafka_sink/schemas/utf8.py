"""Texts are UTF-8 in Avro, Protobuf and JSON, and a reader may fail on anything else. Spark's strings need not be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_sink.schemas.misfit import MisfitScope


def refuse_invalid_utf8(array: pa.Array, scope: MisfitScope) -> pa.Array:
    """The same array, with U+FFFD for bytes that are not UTF-8: their rows are reported as misfits, and a dead letter
    still shows the rest of the text."""
    try:
        array.validate(full=True)
    except pa.ArrowException:
        contents = array.cast(pa.large_binary()).to_pylist()
        is_bad = np.array([content is not None and not _is_text(content) for content in contents], np.bool_)
        scope.refuse(is_bad, "is not UTF-8")
        texts = [None if content is None else content.decode(errors="replace").encode() for content in contents]
        return pa.array(texts, pa.large_binary())
    return array


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
