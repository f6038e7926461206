"""Arrow columns or Python rows -> record batch bytes. Knows no broker, no connection, no clock.

columns, headers               rows as flat buffers; routing: the partition of each, murmur2: of its key
assembler, cutting             which rows share a batch, and where a long column is cut
encoder, pieces                the bytes of all rows, from varint, bytes_column and arrays
compression, checksum, batch   the closed batch and its header
scalar                         the same one record at a time, and the reader of batches
dead_letter, digest            what a letter says of its row; whether a task has brought the same rows again
"""
