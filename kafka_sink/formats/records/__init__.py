"""Arrow columns or Python rows -> record batch bytes. Knows no broker, no connection, no clock."""
