"""Run by test_upgrades.py inside an earlier release, with that release's own players of Spark's part.

Some batches are delivered, then one more is committed while a proxy may do what it likes. Arguments: bootstrap servers,
topic, query id, how many batches come before that one. What becomes of it is the last line.
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
