"""How the batch of a Spark query becomes visible exactly once: receipts, the ledger, the driver's machine. No I/O.

identity -> receipt -> ledger (records and what they mean), ledger_codec (their bytes) -> inquiry, part (asking) ->
ledger_read, preflight, ledger_write, ending, sweep (C1 to C5) -> judgement, phase, committer (the machine).
"""

from kafka_sink.delivery.committer import Committer, Progress
from kafka_sink.delivery.receipt import BatchKey, BatchSummary, PreparedTransaction, TaskReceipt, Written, summarised
from kafka_sink.delivery.request import (
    CoordinatorOf,
    CoordinatorsOf,
    DriverAnswer,
    DriverRequest,
    EveryBroker,
    Fate,
    LeaderOf,
)
from kafka_sink.delivery.session import Conclusion, DeliverySettings, DriverSession, Job, Operation, Verdict

__all__ = [
    "BatchKey",
    "BatchSummary",
    "Committer",
    "Conclusion",
    "CoordinatorOf",
    "CoordinatorsOf",
    "DeliverySettings",
    "DriverAnswer",
    "DriverRequest",
    "DriverSession",
    "EveryBroker",
    "Fate",
    "Job",
    "LeaderOf",
    "Operation",
    "PreparedTransaction",
    "Progress",
    "TaskReceipt",
    "Verdict",
    "Written",
    "summarised",
]
