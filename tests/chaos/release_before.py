"""test_upgrades.py runs this inside an earlier release, with that release's own simulation of Spark.

Some batches are delivered, then one more is committed while a proxy may harm it. Arguments: bootstrap servers, topic,
query id, number of batches before that one. The last line is its result.
"""

import sys

from tests.chaos.bare_spark import BareQuery, Checkpoint, settings_of

if __name__ == "__main__":
    servers, topic, query_id, batches = sys.argv[1:]
    with BareQuery(Checkpoint(query_id), settings_of(servers, topic)) as query:
        for _ in range(int(batches)):
            query.run_batch()
        query.plan()
        messages = query.write_tasks()
        print("written", flush=True)
        sys.stdin.readline()
        try:
            query.commit(messages)
            print("committed", flush=True)
        except Exception as error:
            print("failed", str(error), flush=True)
