"""One TCP connection of the network: its socket, and what waits to be sent on it."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from itertools import islice

from kafka_sink.error_table.brokers import NO_DESCRIPTOR
from kafka_sink.errors import AuthenticationError, ConfigError, TransportError

# Linux takes 1024 buffers in one call; the send buffer is full long before.
BUFFERS_PER_CALL = 256


class PlainConnection:
    __slots__ = ("connection_id", "is_connecting", "outgoing", "peer", "socket", "tells_written")

    def __init__(self, connection_id: int, opened: socket.socket, peer: str) -> None:
        self.connection_id = connection_id
        self.socket = opened
        self.peer = peer
        self.is_connecting = True
        # Somebody wants to know when nothing is left to be written.
        self.tells_written = False
        self.outgoing: deque[memoryview] = deque()

    @property
    def has_unread(self) -> bool:
        """Is there something to read that the selector cannot see? Only TLS decrypts ahead."""
        return False

    def establish(self) -> int:
        """After the selector's word that it may go on: what to wait for next, 0 for nothing. Raises `OSError`."""
        refused = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refused:
            raise OSError(refused, os.strerror(refused))
        return 0

    def receive_into(self, buffer: memoryview) -> int:
        """0: the peer has closed. Raises `BlockingIOError` when there is nothing now."""
        return self.socket.recv_into(buffer)

    def send(self) -> int:
        """How many bytes of `outgoing`, from the front, are on their way. Raises `BlockingIOError`."""
        return self.socket.sendmsg(islice(self.outgoing, BUFFERS_PER_CALL))

    def failure_of(self, error: Exception | None) -> TransportError | AuthenticationError | ConfigError:
        """What it means that the connection ended so; None: the peer closed it."""
        if isinstance(error, (AuthenticationError, ConfigError)):
            return error
        return failure_of(self.peer, error)


def failure_of(peer: str, error: Exception | None) -> TransportError:
    if error is None:
        return TransportError(f"{peer} closed the connection")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return TransportError(f"{peer}: this process cannot open more files ({error.strerror})", NO_DESCRIPTOR)
    return TransportError(f"{peer}: {getattr(error, 'strerror', None) or error}")
