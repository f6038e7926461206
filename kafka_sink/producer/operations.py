"""Operations with a result (flush, the steps of a transaction): posted, awaited with a timeout, measured.

A step of a transaction that timed out, or whose wait was interrupted (Ctrl-C), continues. Its outcome must not be lost
(a commit with an unknown result), nor be taken for that of a later step. So it is kept until the same method is called
again, which waits for the same end. Until then no other step is allowed, nor the same with other arguments, which would
get the wrong outcome. Only an abort may replace a prepare, or offsets being sent: it ends the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout
from kafka_sink.producer.appender import Appender
from kafka_sink.producer.engine.commands import Flush, OperationCall, PendingOperation
from kafka_sink.producer.mailbox import Mailbox, deadline_of
from kafka_sink.producer.metrics import ProducerMetrics

ABORT, PREPARE, OFFSETS = "abort_transaction()", "prepare_transaction()", "send_offsets_to_transaction()"


class Operations:
    def __init__(self, mailbox: Mailbox, appender: Appender, metrics: ProducerMetrics, max_block_ms: int) -> None:
        self._mailbox = mailbox
        self._appender = appender
        self._metrics = metrics
        self._max_block_ms = max_block_ms
        # The step that timed out or was interrupted, until its outcome has been returned.
        self._unfinished: PendingOperation | None = None
        self._unfinished_arguments: tuple[object, ...] = ()

    def flush(self, timeout_s: float | None) -> None:
        """After everything that was sent so far; None: no timeout."""
        deadline_ms = deadline_of(self._mailbox.clock, timeout_s)
        operation = PendingOperation("flush()")
        self._post(Flush(operation), is_behind_rows=True)
        self._wait(operation, deadline_ms, f"{timeout_s} s", metric="flush")

    def step(
        self,
        name: str,
        call: Callable[..., OperationCall],
        *arguments: object,
        metric: str | None = None,
        is_behind_rows: bool = False,
        refusal: KafkaSinkError | None = None,
    ) -> object:
        """A step of a transaction, within max.block.ms. `arguments`: of the call, besides the operation."""
        deadline_ms = self._mailbox.clock.monotonic_ms() + self._max_block_ms
        limit = f"max.block.ms={self._max_block_ms}"
        operation = self._find_unfinished(name, arguments) or PendingOperation(name)
        self._unfinished = None
        try:
            if operation.is_posted:
                self._mailbox.wake()  # perhaps the interrupt came before the sender was woken
            else:
                self._post(call(operation, *arguments), is_behind_rows=is_behind_rows, refusal=refusal)
            return self._wait(operation, deadline_ms, limit, metric=metric)
        except BaseException as error:
            is_outcome = (
                operation.is_over and isinstance(error, KafkaSinkError) and not isinstance(error, OperationTimeout)
            )
            if operation.is_posted and not is_outcome:
                self._unfinished, self._unfinished_arguments = operation, arguments
            raise

    def _find_unfinished(self, name: str, arguments: tuple[object, ...]) -> PendingOperation | None:
        unfinished = self._unfinished
        if unfinished is None or (unfinished.name == name and self._unfinished_arguments == arguments):
            return unfinished
        if name == ABORT and unfinished.name in (PREPARE, OFFSETS):
            return None
        again = "again first, with the same arguments as before" if unfinished.name == name else "it again first"
        raise LocalProtocolError(
            f"{name}: {unfinished.name} timed out or was interrupted before, and its result is not known yet; "
            f"call {again}"
        )

    def _post(self, call: OperationCall, *, is_behind_rows: bool, refusal: KafkaSinkError | None = None) -> None:
        mailbox = self._mailbox
        mailbox.refuse_to_block(call.operation.name)
        if is_behind_rows:
            self._appender.post_behind(call, refusal=refusal)
        else:
            mailbox.post_operation(call)
            mailbox.wake()

    def _wait(self, operation: PendingOperation, deadline_ms: int | None, limit: str, *, metric: str | None) -> object:
        mailbox = self._mailbox
        started_ns = mailbox.clock.monotonic_ns()
        try:
            return mailbox.wait_for_operation(operation, deadline_ms, limit)
        finally:
            if metric is not None:
                self._metrics.on_call(metric, duration_ns=mailbox.clock.monotonic_ns() - started_ns)
