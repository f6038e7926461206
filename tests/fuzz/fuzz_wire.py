"""Feeds broken input to every decoder: whatever comes from the network ends as a value or as a RemoteProtocolError.

Usage: python -m tests.fuzz.fuzz_wire [--count 1000000] [--seed 1]

Inputs are valid messages (generated ones, and frames recorded from real brokers) with bytes changed, removed, repeated
or inserted, and plain random bytes. The seed is printed first; the same seed and count give the same inputs. Any other
exception ends the run with the decoder and the input in hex. Decoders of formats/records/ are included.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crc32c import crc32c

from kafka_sink.commit.log_scan import raw_batches
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records.batch import HEADER_BYTES, seal
from kafka_sink.formats.records.compression import CODEC_IDS, decompress, make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, decode_records, encode_batch, encode_records
from kafka_sink.formats.records.skim import skim_batch
from kafka_sink.kafka.wire.apis import APIS
from kafka_sink.kafka.wire.frames import FrameBuffer, decode_request_header, decode_response, encode_request
from tests.support.wire_values import RandomChoices, body, decode, encode, message_id, messages, rows

GOLDEN = Path(__file__).parents[1] / "golden"
EXTREMES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x80",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, and valid inputs to start from. Targets of the same group share a line of the report."""

    group: str
    run: Callable[[bytes], object]
    valid: tuple[bytes, ...]


class ForeignException(Exception):
    pass


def wire_targets(choices: RandomChoices) -> Iterator[Target]:
    recorded = recorded_frames()
    for message in messages():
        api, is_request, version = message
        valid = [encode(message, body(choices, rows(message), version)) for _ in range(4)]
        valid += recorded.get((api.key, is_request, version), [])
        yield Target(message_id(message).rpartition("-v")[0], partial(decode, message), tuple(valid))
        if not is_request:
            header = b"\0\0\0\1" + b"\0" * api.response_header_version(version)
            run = partial(_answer_frame, message)
            yield Target("answer frame", run, tuple(header + answer for answer in valid))
        else:
            parameters: dict[str, Any] = {"correlation_id": 1, "client_id": "fuzz"}
            frames = [
                encode_request(api, version, **parameters, body=api.decode_request(version, v))[4:] for v in valid
            ]
            yield Target("request header", decode_request_header, tuple(frames))
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in (b"", b"a", b"b" * 300, b"c" * 5000))
    yield Target("FrameBuffer", partial(_cut, choices), (stream, stream[:100], b"HTTP/1.1 200 OK", b"\x16\x03\x01"))


def recorded_frames() -> dict[tuple[int, bool, int], list[bytes]]:
    """Bodies by (api key, is request, version)."""
    found: dict[tuple[int, bool, int], list[bytes]] = {}
    for path in sorted(GOLDEN.glob("wire_*.json")):
        for pair in json.loads(path.read_text())["pairs"]:
            api, version = APIS.get(pair["api_key"]), pair["version"]
            if api is None or not api.version_min <= version <= api.version_max:
                continue
            request, answer = bytes.fromhex(pair["request"]), bytes.fromhex(pair["answer"])
            found.setdefault((api.key, True, version), []).append(request[decode_request_header(request)[4] :])
            offset = 4 + api.response_header_version(version)
            found.setdefault((api.key, False, version), []).append(answer[offset:])
    return found


def _answer_frame(message: tuple[Any, bool, int], data: bytes) -> object:
    api, _, version = message
    return decode_response(api, version, data, 1)


def _cut(choices: RandomChoices, data: bytes) -> int:
    """Feeds the stream in random pieces; what is not a frame is refused or stays incomplete."""
    frames = FrameBuffer(frame_bytes_max=4096)
    position = count = 0
    while position < len(data):
        size = choices.integer(1, 64)
        frames.feed(data[position : position + size])
        position += size
        while frames.next_frame() is not None:
            count += 1
    if frames.size > 4096 + 4:
        raise AssertionError("more than one frame is waiting")
    return count


def record_targets() -> Iterator[Target]:
    records = [Record(1000 + i, b"key", b"value" * i, (("header", b"x"), ("null", None))) for i in range(20)]
    content = encode_records(records, 1000)
    batches = []
    for name, codec_id in CODEC_IDS.items():
        codec = make_compressor(name)
        payload = codec.compress(content)
        yield Target(f"decompress {name}", partial(decompress, codec_id, bytes_max=len(content)), (payload,))
        encoded = encode_batch(records, codec)
        batches.append(seal(encoded) + encoded.payload)
    yield Target("decode_records", lambda data: decode_records(data, len(records), 1000), (content,))
    yield Target("decode_batch", partial(decode_batch, records_bytes_max=1 << 20), tuple(batches))
    yield Target(
        "decode_batch, checksum made right",
        lambda data: decode_batch(repaired(data), records_bytes_max=1 << 20),
        tuple(batches),
    )
    skimmed = partial(skim_batch, is_wanted=lambda _: True, value_bytes_max=100, records_bytes_max=1 << 20)
    yield Target("skim_batch, checksum made right", lambda data: list(skimmed(repaired(data))), tuple(batches))
    yield Target("raw_batches", lambda data: list(raw_batches(data)), (b"".join(batches),))


def repaired(data: bytes) -> bytes:
    """With a length and checksum that fit the content, so that the code behind these checks is reached."""
    if len(data) < HEADER_BYTES:
        return data
    length = (len(data) - 12).to_bytes(4, "big")
    return data[:8] + length + data[12:16] + b"\x02" + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def mutated(rng: random.Random, valid: bytes) -> bytes:
    data = bytearray(valid)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        where = rng.randint(0, len(data))
        kind = rng.choice((0, 1, 2, 3, 3, 4, 5, 5, 5, 5))  # in place more often: shifted bytes rarely get far
        if kind == 0:
            del data[where:]
        elif kind == 1:
            del data[where : where + rng.randint(1, 8)]
        elif kind == 2:
            data[where:where] = rng.choice(EXTREMES)
        elif kind == 3:
            extreme = rng.choice(EXTREMES)
            data[where : where + len(extreme)] = extreme
        elif kind == 4:
            data[where:where] = data[where : where + rng.randint(1, 64)] * rng.randint(1, 4)
        elif where < len(data):
            data[where] = rng.randint(0, 255)
    return bytes(data)


def fuzz(count: int, seed: int) -> dict[str, Counter[str]]:
    """Returns per group how many inputs were decoded and how many were refused."""
    choices = RandomChoices(seed)
    rng = choices.random
    groups: dict[str, list[Target]] = {}
    for target in (*wire_targets(choices), *record_targets()):
        groups.setdefault(target.group, []).append(target)
    names = list(groups)
    report: dict[str, Counter[str]] = {name: Counter() for name in names}
    for number in range(count):
        name = names[number % len(names)]
        target = rng.choice(groups[name])
        data = rng.randbytes(rng.randint(0, 200)) if rng.random() < 0.1 else mutated(rng, rng.choice(target.valid))
        try:
            target.run(data)
        except RemoteProtocolError:
            report[name]["refused"] += 1
        except Exception as error:
            raise ForeignException(f"seed {seed}, input {number}, {name}, {target.run}: {data.hex()}") from error
        else:
            report[name]["read"] += 1
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzz every decoder")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.count} inputs", flush=True)
    started = time.perf_counter()
    report = fuzz(options.count, options.seed)
    for name, outcome in report.items():
        print(f"{name:40} {outcome.total():8} inputs {outcome['refused']:8} refused {outcome['read']:8} read")
    total = sum(outcome.total() for outcome in report.values())
    print(f"{total} inputs, no foreign exception, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
