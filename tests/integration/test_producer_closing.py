"""How a producer ends: closed in every way, dropped, forked, interrupted. Nothing is left behind and nothing hangs."""

from __future__ import annotations

import _thread
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import pytest

from kafka_sink import Producer
from kafka_sink.errors import DeliveryError, KafkaSinkError, LocalProtocolError, OperationTimeout
from kafka_sink.producer.core import _alive
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.support.producing import (
    TIMEOUT_S,
    break_engine,
    descriptor_count,
    producer_of,
    replace_start,
    senders,
    transactional,
    values,
)
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

HOUR_MS = 3_600_000
# No server listens there: connections are refused at once.
NOBODY = "127.0.0.1:1"


def test_a_thousand_producers_opened_and_closed_leave_no_thread_and_no_descriptor(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, linger_ms=0) as producer:
        producer.send(topic_name, b"warm").result(TIMEOUT_S)
    gc.collect()
    before = descriptor_count()
    assert not senders()
    for number in range(1000):
        producer = producer_of(kafka_4, linger_ms=0)
        if number % 20 == 0:
            producer.send(topic_name, b"%d" % number).result(TIMEOUT_S)
        producer.close(0 if number % 3 == 0 else TIMEOUT_S)
    assert not senders()
    assert descriptor_count() <= before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_ever_if_memory_runs_out_twice_in_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody has been told that it ends."""
    producer = Producer({"bootstrap.servers": NOBODY})
    core = producer._core
    end = core.mailbox.end

    def fail(*_: object, **__: object) -> None:
        monkeypatch.setattr(core.mailbox, "end", end)
        raise MemoryError

    monkeypatch.setattr(core.mailbox, "end", fail)
    break_engine(monkeypatch, producer)
    core.mailbox.wake()
    core.sender.thread.join(TIMEOUT_S)
    assert not core.sender.thread.is_alive()
    with pytest.raises(DeliveryError, match="the producer stopped: unexpected ZeroDivisionError") as caught:
        producer.flush(TIMEOUT_S)
    assert caught.value.ambiguous
    with pytest.raises(DeliveryError, match="the producer stopped"):
        producer.send("rows", b"late")
    producer.close()
    assert core not in _alive


def test_closing_sends_what_is_queued_and_may_be_repeated(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    producer = producer_of(kafka, linger_ms=60_000)
    futures = [producer.send(topic_name, b"%d" % number) for number in range(100)]
    producer.close()
    assert [future.result(0).offset for future in futures] == list(range(100))
    producer.close()
    producer.close(0)
    for call in (lambda: producer.send(topic_name, b"late"), producer.flush, lambda: producer.partitions_for("new")):
        with pytest.raises(LocalProtocolError, match="the producer is closed"):
            call()
    assert len(values(kafka, topic_name)) == 100
    with pytest.raises(LocalProtocolError, match="negative"):
        producer.close(-1)


def test_closing_with_zero_gives_up_what_is_queued_and_says_so(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    producer = producer_of(kafka_4, linger_ms=60_000)
    seen: list[object] = []
    future = producer.send(topic_name, b"v", on_delivery=lambda metadata, error: seen.append(error))
    producer.close(0)
    with pytest.raises(DeliveryError, match="the producer was closed without waiting"):
        future.result(0)
    assert [type(error) for error in seen] == [DeliveryError]
    assert values(kafka_4, topic_name) == []


def test_a_close_that_runs_out_of_time_raises_and_every_future_ends() -> None:
    # No other limit of the producer ends within the test.
    producer = Producer({"bootstrap.servers": NOBODY, "max.block.ms": 100, "delivery.timeout.ms": HOUR_MS})
    with pytest.raises(OperationTimeout, match="is not known within"):
        producer.send("t", b"v")
    producer.close(0.5)
    assert not senders()


def test_records_that_a_timed_out_close_gave_up_are_counted() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.inject(Fault("Produce", delay_before_ms=HOUR_MS))
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000})
        futures = [producer.send("t", b"v") for _ in range(10)]
        producer.partitions_for("t")
        with pytest.raises(OperationTimeout, match="10 records were given up") as given_up:
            producer.close(0.3)
        assert given_up.value.name == "PKS-5011" and "Calling close() again" in given_up.value.entry.cure
    assert all(isinstance(future.exception(0), DeliveryError) for future in futures)


def test_a_step_of_a_transaction_after_close_is_refused() -> None:
    producer = Producer({"bootstrap.servers": NOBODY, "transactional.id": "closed", "max.block.ms": 1000})
    producer.close()
    for step in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
        with pytest.raises(LocalProtocolError, match="the producer is closed"):
            step()


def test_a_callback_may_close_the_producer(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    producer = producer_of(kafka_4)
    producer.send(topic_name, b"v", on_delivery=lambda *_: producer.close())
    wait_until(lambda: not senders(), "its thread has ended")
    with pytest.raises(KafkaSinkError, match="closed"):
        producer.send(topic_name, b"late")
    producer.close()


def test_an_exception_in_the_with_block_survives_and_what_was_sent_arrives(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)

    def fail_inside() -> None:
        with producer_of(kafka_4, linger_ms=60_000) as producer:
            producer.send(topic_name, b"before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert values(kafka_4, topic_name) == [b"before"]
    assert not senders()


def test_a_forgotten_producer_warns_sends_what_it_has_and_ends_its_thread(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    producer = producer_of(kafka_4, linger_ms=60_000)
    future = producer.send(topic_name, b"kept")
    is_alive = weakref.ref(producer)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert ["was not closed" in str(each.message) for each in told if each.category is ResourceWarning] == [True]
    assert is_alive() is None
    assert future.result(TIMEOUT_S).offset == 0
    wait_until(lambda: not senders(), "its thread has ended")
    assert values(kafka_4, topic_name) == [b"kept"]


def test_a_forgotten_producer_ends_its_thread_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: unraisable.append(told.exc_type))
    producer = Producer({"bootstrap.servers": NOBODY})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del producer
        gc.collect()
    assert unraisable == [ResourceWarning]
    wait_until(lambda: not senders(), "its thread has ended")


def test_a_constructor_that_fails_leaves_nothing_behind() -> None:
    gc.collect()  # what earlier tests have left does not count
    before = descriptor_count()
    with pytest.raises(KafkaSinkError):
        Producer({"bootstrap.servers": NOBODY, "compression.type": "lz4", "compression.lz4.level": 99})
    gc.collect()
    assert descriptor_count() <= before and not senders()


def test_an_interrupted_constructor_ends_the_thread_that_it_has_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        raise KeyboardInterrupt

    before = descriptor_count()
    replace_start(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        Producer({"bootstrap.servers": NOBODY})
    wait_until(lambda: not senders() and descriptor_count() <= before, "thread and descriptors are gone")
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_a_signal_handler_in_the_middle_of_a_call_waits_for_nothing_and_changes_nothing() -> None:
    """Whatever lock its thread holds. The limits of time are for the test."""
    with EmbeddedBroker(topics={"t": 1}) as broker, transactional(broker, "handler", linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"v", partition=0)
        core = producer._core
        for lock in (core.mailbox.lock, core.appender.lock, core.metrics.lock, core.network.wake_lock):
            calls = (
                lambda: producer.flush(1), lambda: producer.close(1), producer.commit_transaction,
                lambda: future.result(1), lambda: producer.send("new", b"v"),
            )  # fmt: skip
            with lock:
                for call in calls:
                    with pytest.raises(LocalProtocolError, match="in the middle of another one"):
                        call()
        producer.commit_transaction()
        assert future.result(TIMEOUT_S).offset == 0


def test_a_producer_does_not_pickle() -> None:
    with Producer({"bootstrap.servers": NOBODY}) as producer, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(producer)


def test_senders_waiting_for_metadata_are_woken_by_close() -> None:
    producer = Producer({"bootstrap.servers": NOBODY, "max.block.ms": 60_000})
    errors: list[KafkaSinkError] = []

    def send() -> None:
        try:
            producer.send("t", b"v")
        except KafkaSinkError as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    producer.close()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert [str(error) for error in errors] == ["the producer is closed"] * 3


def test_an_error_that_should_not_exist_ends_everybody_who_waits(
    kafka_4: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_4.create_topic(topic_name)
    producer = producer_of(kafka_4, linger_ms=60_000)
    collected = producer.send(topic_name, b"collected")

    break_engine(monkeypatch, producer)
    with pytest.raises(DeliveryError, match="unexpected ZeroDivisionError: a bug") as caught:
        producer.flush(TIMEOUT_S)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    for call in (lambda: collected.result(0), lambda: producer.send(topic_name, b"late"), producer.flush):
        with pytest.raises(DeliveryError, match="What was not acknowledged may be in the log"):
            call()
    producer.close()
    assert not senders()
    assert any(record.levelname == "CRITICAL" for record in caplog.records)


def test_an_interrupt_in_the_middle_of_assembling_finishes_the_producer(
    kafka_4: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_4.create_topic(topic_name)
    producer = producer_of(kafka_4, linger_ms=60_000, batch_size=1000)
    future = producer.send(topic_name, b"v")

    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._appender._assembler, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    with pytest.raises(KafkaSinkError, match="KeyboardInterrupt came: nobody knows which are in"):
        future.result(TIMEOUT_S)
    with pytest.raises(KafkaSinkError, match="KeyboardInterrupt"):
        producer.send(topic_name, b"late")
    producer.close()
    assert not senders()


def run_script(text: str, *arguments: str, interrupt_after: str | None = None) -> tuple[int, str]:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-u", "-X", "dev", "-c", text, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line)
            if interrupt_after is not None and interrupt_after in line:
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
        return process.wait(TIMEOUT_S), "".join(lines)


@pytest.mark.parametrize(
    "blocked",
    [
        "producer.send('missing', b'v')",
        "transactional.init_transactions()",
        "producer.close()",
    ],
)
def test_ctrl_c_works_while_blocked(blocked: str) -> None:
    # Only the interrupt ends it within the test.
    code, output = run_script(f"""
from kafka_sink import Producer
from kafka_sink.producer.engine.engine import Engine
options = {{"bootstrap.servers": "{NOBODY}", "max.block.ms": {HOUR_MS}}}
producer, transactional = Producer(options), Producer({{**options, "transactional.id": "t"}})
Engine._is_over = lambda self: False  # nothing that is being closed comes to its end
try:
    print("blocked")
    {blocked}
except KeyboardInterrupt:
    print("interrupted")
producer.close(0)
transactional.close(0)
""", interrupt_after="blocked")  # fmt: skip
    assert (code, "interrupted" in output) == (0, True), output


def test_an_interrupt_that_comes_just_before_the_thread_sleeps_is_noticed() -> None:
    """`interrupt_main` records the signal without interrupting a system call, as with an interrupt at that moment."""
    timer = threading.Timer(0.3, _thread.interrupt_main)
    with Producer({"bootstrap.servers": NOBODY, "max.block.ms": 60_000, "reconnect.backoff.ms": 60_000}) as producer:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.send("missing", b"v")
        timer.join()


def test_ctrl_c_works_while_waiting_for_room_and_for_a_future(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    for blocked in ("fill", "future.result", "producer.flush"):
        code, output = run_script("""
import sys
from kafka_sink import Producer
servers, topic, blocked = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "buffer.memory": 100000})
producer.partitions_for(topic)
# From now on nothing is acknowledged.
from kafka_sink.producer.engine.batch_sender import BatchSender
BatchSender.make_request = lambda *arguments: None
future = producer.send(topic, b"v")
def fill():
    while True:
        producer.send(topic, bytes(1000))
try:
    print("blocked")
    eval(blocked)()
except KeyboardInterrupt:
    print("interrupted", len(producer._appender.buffer_pool.waiters))
producer.close(0)
""", kafka_4.bootstrap_servers, topic_name, blocked, interrupt_after="blocked")  # fmt: skip
        assert (code, "interrupted 0" in output) == (0, True), output


def test_a_forked_child_gets_clear_errors_and_the_parent_goes_on(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    code, output = run_script("""
import gc, os, sys, warnings
from kafka_sink import Producer
from kafka_sink.errors import LocalProtocolError
servers, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "linger.ms": 200})
producer.send(topic, b"before").result(30)
pending = producer.send(topic, b"pending")
child = os.fork()
if child == 0:
    told = 0
    for call in (lambda: producer.send(topic, b"child"), producer.flush, lambda: pending.result(5), producer.metrics,
                 lambda: producer.partitions_for(topic), producer.init_transactions):
        try:
            call()
        except LocalProtocolError as error:
            told += "Make a producer in the child process" in str(error)
    producer.close()
    del producer, pending
    gc.collect()
    with Producer({"bootstrap.servers": servers}) as own:
        own.send(topic, b"own").result(30)
    os._exit(told)
print("child told", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("pending", pending.result(30).offset >= 1)
print("parent", producer.send(topic, b"after").result(30).offset)
producer.close()
""", kafka_4.bootstrap_servers, topic_name)  # fmt: skip
    assert code == 0, output
    assert "child told 6" in output, output
    assert "pending True" in output, output
    assert "parent 3" in output, output
    assert sorted(str(value) for value in values(kafka_4, topic_name)) == sorted(
        str(value) for value in (b"before", b"pending", b"own", b"after")
    )


def test_a_forked_child_waits_for_no_lock_that_a_thread_of_its_parent_held() -> None:
    code, output = run_script("""
import faulthandler, os, sys, threading
from kafka_sink import Producer
from kafka_sink.errors import LocalProtocolError
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "forked"})
core = producer._core
is_held, is_over = threading.Event(), threading.Event()
def hold():
    with core.appender.lock, core.mailbox.lock, core.metrics.lock, core.network.wake_lock:
        is_held.set()
        is_over.wait(60)
threading.Thread(target=hold, daemon=True).start()
assert is_held.wait(10)
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    told = 0
    for call in (producer.flush, producer.init_transactions, lambda: producer.send("t", b"v"), producer.metrics):
        try:
            call()
        except LocalProtocolError:
            told += 1
    producer.totals()
    producer.close()
    os._exit(told)
is_over.set()
print("child told", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
producer.close(0)
""", NOBODY)  # fmt: skip
    assert (code, "child told 4" in output) == (0, True), output


def test_a_program_that_ends_without_close_is_told_what_it_lost(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    code, output = run_script("""
import sys
from kafka_sink import Producer
servers, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "linger.ms": 60000, "client.id": "forgetful"})
producer.send(topic, b"1")
producer.send(topic, b"2")
""", kafka_4.bootstrap_servers, topic_name)  # fmt: skip
    assert code == 0, output
    assert "producer forgetful was not closed before the end of the program: 2 records are lost or in doubt" in output


def test_an_exception_in_the_with_block_does_not_wait_for_ever_for_a_broker_that_is_gone() -> None:
    options = {"transactional.id": "gone", "delivery.timeout.ms": 2000, "request.timeout.ms": 1000, "linger.ms": 0}

    def fail_while_the_coordinator_is_away() -> None:
        with (
            EmbeddedBroker(topics={"t": 1}) as kafka,
            Producer({"bootstrap.servers": kafka.bootstrap_servers, **options}) as producer,
        ):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v").result(10)
            kafka.stop_broker(1)
            raise ValueError("the application's own")

    with pytest.raises(ValueError, match="the application's own"):
        fail_while_the_coordinator_is_away()
