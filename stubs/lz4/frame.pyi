# The part of lz4.frame that this project calls; the package has no type information of its own.

BLOCKSIZE_MAX64KB: int

def compress(
    data: bytes | bytearray | memoryview,
    compression_level: int = ...,
    block_size: int = ...,
    content_checksum: bool = ...,
    block_linked: bool = ...,
    store_size: bool = ...,
    return_bytearray: bool = ...,
    block_checksum: bool = ...,
) -> bytes: ...

class LZ4FrameDecompressor:
    eof: bool
    needs_input: bool
    unused_data: bytes | None
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...
