"""Kafka for Spark and for Python without a JVM client. Everything public is imported from here.

Names are loaded when they are first used: numpy and pyarrow take a quarter of a second, and a program that only wants
an error class or the version should not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_sink.commit.admin.manifests import BatchManifest as BatchManifest
    from kafka_sink.commit.admin.manifests import read_manifests as read_manifests
    from kafka_sink.errors import AuthenticationError as AuthenticationError
    from kafka_sink.errors import AuthorizationError as AuthorizationError
    from kafka_sink.errors import BrokerError as BrokerError
    from kafka_sink.errors import BufferExhausted as BufferExhausted
    from kafka_sink.errors import CommitAborted as CommitAborted
    from kafka_sink.errors import CommitError as CommitError
    from kafka_sink.errors import CommitLost as CommitLost
    from kafka_sink.errors import CommitPending as CommitPending
    from kafka_sink.errors import ConfigError as ConfigError
    from kafka_sink.errors import DataError as DataError
    from kafka_sink.errors import DeliveryError as DeliveryError
    from kafka_sink.errors import DeliveryTimeout as DeliveryTimeout
    from kafka_sink.errors import KafkaSinkError as KafkaSinkError
    from kafka_sink.errors import LocalProtocolError as LocalProtocolError
    from kafka_sink.errors import OperationTimeout as OperationTimeout
    from kafka_sink.errors import OutOfMemory as OutOfMemory
    from kafka_sink.errors import ProducerFenced as ProducerFenced
    from kafka_sink.errors import RemoteProtocolError as RemoteProtocolError
    from kafka_sink.errors import TransactionAborted as TransactionAborted
    from kafka_sink.errors import TransactionError as TransactionError
    from kafka_sink.errors import TransportError as TransportError
    from kafka_sink.kafka.client.cluster import PartitionInfo as PartitionInfo
    from kafka_sink.operate.checks.finding import CheckReport as CheckReport
    from kafka_sink.operate.checks.run import check as check
    from kafka_sink.options import ProducerOptions as ProducerOptions
    from kafka_sink.options.parse import parse_producer_options as parse_producer_options
    from kafka_sink.producer.arrow_future import ArrowFuture as ArrowFuture
    from kafka_sink.producer.arrow_future import ArrowMetadata as ArrowMetadata
    from kafka_sink.producer.arrow_future import PartitionRange as PartitionRange
    from kafka_sink.producer.engine.commands import ConsumerGroup as ConsumerGroup
    from kafka_sink.producer.engine.commands import TransactionReceipt as TransactionReceipt
    from kafka_sink.producer.future import RecordFuture as RecordFuture
    from kafka_sink.producer.future import RecordMetadata as RecordMetadata
    from kafka_sink.producer.interceptors import ProducerRecord as ProducerRecord
    from kafka_sink.producer.offsets import OffsetAndMetadata as OffsetAndMetadata
    from kafka_sink.producer.producer import Producer as Producer
    from kafka_sink.spark import register as register
    from kafka_sink.spark.chunks import ChunkSummary as ChunkSummary
    from kafka_sink.spark.chunks import ExportSummary as ExportSummary
    from kafka_sink.spark.chunks import write_in_chunks as write_in_chunks
    from kafka_sink.spark.second_door import WriteSummary as WriteSummary
    from kafka_sink.spark.second_door import foreach_batch as foreach_batch
    from kafka_sink.spark.second_door import write as write
    from kafka_sink.spark.second_door import write_batch as write_batch
    from kafka_sink.telemetry.metrics.notebook import SinkMetrics as SinkMetrics
    from kafka_sink.telemetry.metrics.notebook import sink_metrics as sink_metrics
    from kafka_sink.version import VERSION as VERSION

_HOMES = {
    "commit.admin.manifests": "BatchManifest read_manifests",
    "operate.checks.finding": "CheckReport",
    "operate.checks.run": "check",
    "producer.engine.commands": "ConsumerGroup TransactionReceipt",
    "errors": "AuthenticationError AuthorizationError BrokerError BufferExhausted CommitAborted CommitError CommitLost "
    "CommitPending ConfigError DataError DeliveryError "
    "DeliveryTimeout KafkaSinkError LocalProtocolError OperationTimeout OutOfMemory ProducerFenced "
    "RemoteProtocolError TransactionAborted TransactionError TransportError",
    "telemetry.metrics.notebook": "SinkMetrics sink_metrics",
    "options": "ProducerOptions",
    "options.parse": "parse_producer_options",
    "producer.arrow_future": "ArrowFuture ArrowMetadata PartitionRange",
    "producer.future": "RecordFuture RecordMetadata",
    "producer.interceptors": "ProducerRecord",
    "producer.offsets": "OffsetAndMetadata",
    "producer.producer": "Producer",
    "spark": "register",
    "spark.chunks": "ChunkSummary ExportSummary write_in_chunks",
    "spark.second_door": "WriteSummary foreach_batch write write_batch",
    "kafka.client.cluster": "PartitionInfo",
    "version": "VERSION",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
