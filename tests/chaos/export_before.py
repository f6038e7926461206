"""test_upgrades.py runs this inside an earlier release: a labelled batch write, in the processes that Spark would use.

Arguments: bootstrap servers, topic, sink id, label. The last line is the result of the commit.
"""

import sys

from kafka_sink.spark import planning, task, writer
from tests.chaos import export_before
from tests.chaos.bare_spark import PARTITIONS, ROWS, TASKS, Worker
from tests.chaos.bare_work import SCHEMA, _arrow_batches


def plan(settings):
    return planning.planned_batch(settings, SCHEMA, False)


def write(planned):
    share = ROWS // TASKS
    return [
        writer.CommitMessage(
            task.write_task(
                planned._options,
                planned._columns,
                _arrow_batches(range(number * share, (number + 1) * share), PARTITIONS),
                task.TaskPlace(planned._key, planned._run, number, number, planned._sink_id),
            )
        )
        for number in range(TASKS)
    ]


def commit(planned, messages):
    planned.commit(messages)


def abort(planned, messages):
    planned.abort(messages)


if __name__ == "__main__":
    servers, topic, sink_id, label = sys.argv[1:]
    settings = {"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": sink_id, "batch.id": label}
    planned = Worker().call(export_before.plan, settings)
    messages = Worker().call(export_before.write, planned)
    print("written", flush=True)
    sys.stdin.readline()
    try:
        Worker().call(export_before.commit, planned, messages)
        print("committed", flush=True)
    except Exception as error:
        Worker().call(export_before.abort, planned, messages)
        print("failed", str(error), flush=True)
