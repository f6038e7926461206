"""Where a producer's time goes: `python -m bench.profile [send|send_arrow] [--lines] [--case 100B-none] [--records N]`.

By functions (the default): one cProfile for the application's thread and one for the sender thread, both counting CPU
time of their own thread. It overestimates small functions, and has reported more CPU for the sender's `poll` than
the whole thread uses without a profiler: rely on the totals per thread, which are printed first.
By lines: a timer interrupts the application's thread every millisecond of the process's CPU time and notes where it
is; a line that calls into C is charged with it.

Both start after a warm-up, and first print the CPU time of each thread without a profiler.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from bench.clients.common import Client, Job
from bench.clients.ours_arrow import OursArrow
from bench.clients.ours_send import OursSend
from bench.contest import Arena, open_arena
from bench.payload import read_payload
from bench.plan import BATCH_BYTES, FULL, LINGER_MS, PARTITIONS, Case
from kafka_sink.producer.sender import Sender

SAMPLE_S = 0.001
_CLIENTS = {"send": OursSend, "send_arrow": OursArrow}
_ROOT = str(Path(__file__).parent.parent) + "/"


def main() -> None:
    options = _options()
    case = next(case for case in FULL.cases if case.name == options.case)
    with open_arena() as arena:
        job = _job(arena, case, options.records)
        client = _CLIENTS[options.client](job)
        work = client.prepare(read_payload(job.payload_path), job.records)
        _send(client, work)
        with _thread_times(job.records):
            _send(client, work)
        if options.lines:
            _by_lines(client, work, options.rows)
        else:
            _by_functions(client, work, options.rows)
        client.close()


def _job(arena: Arena, case: Case, records: int) -> Job:
    return Job(
        bootstrap_servers=arena.kafka.bootstrap_servers,
        topic=arena.kafka.create_topic("profile", partitions=PARTITIONS),
        payload_path=str(arena.payload(case.record_bytes)),
        codec=case.codec,
        batch_bytes=BATCH_BYTES,
        linger_ms=LINGER_MS,
        warm_up_records=records,
        records=records,
    )


def _send(client: Client, work: object) -> None:
    client.send(work)
    client.flush()


@contextmanager
def _thread_times(records: int) -> Iterator[None]:
    names = {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id}
    before, started = {number: _cpu_seconds(number) for number in names}, time.perf_counter()
    yield
    print(f"{records / (time.perf_counter() - started):,.0f} records/s; CPU us per record:")
    for number, name in names.items():
        print(f"  {(_cpu_seconds(number) - before[number]) / records * 1e6:7.3f}  {name}")


def _cpu_seconds(native_id: int) -> float:
    """Nanoseconds on a processor, as the scheduler counts them: ticks of 10 ms would be too coarse."""
    return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[0]) / 1e9


# ---- by functions ----------------------------------------------------------------------------------------------------


def _by_functions(client: Client, work: object, rows: int) -> None:
    sender_profile = cProfile.Profile(time.thread_time)
    turn = Sender.turn

    def profiled_turn(sender: Sender) -> bool:
        sender_profile.enable()
        try:
            return turn(sender)
        finally:
            sender_profile.disable()

    Sender.turn = profiled_turn  # type: ignore[method-assign]
    own_profile = cProfile.Profile(time.thread_time)
    own_profile.enable()
    _send(client, work)
    own_profile.disable()
    Sender.turn = turn  # type: ignore[method-assign]
    for title, profile in (("application", own_profile), ("sender", sender_profile)):
        print(f"\n==== thread: {title}")
        pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(rows)


# ---- by lines --------------------------------------------------------------------------------------------------------


def _by_lines(client: Client, work: object, rows: int) -> None:
    samples: Counter[tuple[CodeType, int]] = Counter()

    def note(_number: int, frame: FrameType | None) -> None:
        if frame is not None:
            samples[frame.f_code, frame.f_lineno] += 1

    # Python has no timer for the CPU clock of one thread. The timer of the process also counts the sender, whose share
    # is spread over the lines at which the application happens to be.
    signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
    try:
        _send(client, work)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    total = sum(samples.values())
    print(f"\n==== thread: application, {total} samples")
    for (code, line), count in samples.most_common(rows):
        print(f"{count / total:7.1%}  {code.co_filename.removeprefix(_ROOT)}:{line}  {code.co_name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Where a producer's time goes.")
    parser.add_argument("client", nargs="?", default="send_arrow", choices=[*_CLIENTS])
    parser.add_argument("--case", default="100B-none", choices=[case.name for case in FULL.cases])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--lines", action="store_true", help="by lines of the application's thread")
    parser.add_argument("--rows", type=int, default=30, help="number of functions or lines to print")
    return parser.parse_args()


if __name__ == "__main__":
    main()
