"""Arrow's views of texts and bytes: none before pyarrow 18, which did not have them or could not cast them."""

from __future__ import annotations

import pyarrow as pa

_HAS_VIEWS = int(pa.__version__.partition(".")[0]) >= 18
STRING_VIEWS: list[pa.DataType] = [pa.string_view()] if _HAS_VIEWS else []
BINARY_VIEWS: list[pa.DataType] = [pa.binary_view()] if _HAS_VIEWS else []
