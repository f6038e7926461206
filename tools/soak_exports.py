"""The batch writes beside the stream of `make soak`: labels of one sink id side by side, and cancelled nameless writes.

They run in a Spark application of their own, which is not killed: what a killed driver leaves behind is the business of
the stream, and a batch write has nobody who starts it again. The process ends when the file STOP exists, and prints its
verdict as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from kafka_sink.spark import register
from tools.quiet_spark import quiet_session
from tools.stream_load import CancelledWrites, Exports, count_misplaced

STOP = "STOP"
SINK_ID = "soak-exports"
LABELLED = [f"soak-labels-{number}" for number in range(4)]
CANCELLED = "soak-cancelled"
TOPICS = (*LABELLED, CANCELLED)
ROWS, PAUSE_S = 50, 1.0
TRANSACTION_TIMEOUT_MS = 60_000
END_PATIENCE_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    given = parser.parse_args()
    options = {
        "kafka.bootstrap.servers": given.servers,
        "kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
        "ledger.replication.factor": "3",
    }
    folder: Path = given.folder
    with quiet_session(folder, folder / "exports.log", cores=2, is_connect=False, conf={}) as spark:
        register(spark)
        exports = [Exports(spark, options, name, ROWS, PAUSE_S, sink_id=SINK_ID) for name in LABELLED]
        cancelled = CancelledWrites(spark, options, CANCELLED, random.Random(given.seed))
        writers: list[Exports | CancelledWrites] = [*exports, cancelled]
        for writer in writers:
            writer.start()
        while not (folder / STOP).exists():
            time.sleep(0.2)
        wrong = [f"{writer.name} did not end" for writer in writers if not writer.finish(END_PATIENCE_S)]
        open_s = TRANSACTION_TIMEOUT_MS / 1000 + 60
        for each in exports:
            missing, doubled = count_misplaced(given.servers, each.name, each.row_count, open_s_max=open_s)
            if missing or doubled:
                wrong.append(f"{each.name}: {missing} rows missing, {doubled} doubled")
        wrong += cancelled.find_misplaced(given.servers, open_s_max=open_s)
        (folder / "ends.json").write_text(json.dumps([end for writer in writers for end in writer.ends], indent=1))
        verdict = {
            "labelled rows": sum(each.row_count for each in exports),
            "labelled writes": sum(each.write_count for each in exports),
            "labelled writes that failed": sum(len(each.ends) for each in exports),
            "nameless writes": len(cancelled.saved),
            "of them cancelled": sum(not each for each in cancelled.saved.values()),
            "wrong": wrong,
        }
        print(json.dumps(verdict), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
