"""The --help texts of commands: what each does, examples, exit codes."""

from __future__ import annotations

ABOUT = """\
Look at, and put in order, what the Spark sink format("pykafka-sink") has decided; see beforehand whether a job will
work (check), or how fast it writes (perf).

Under exactly-once each batch is decided by one record in a ledger topic; then its transactions are committed, and a
second record closes the decision. A driver that dies in between leaves an open decision. The query finishes it when it
starts again, or `recover` does, as long as the transactions have not timed out. If they have, rows are missing and a
person has to choose: `resolve`.
"""

CODES = """\
exit codes:
  0  nothing is open, or it was put in order
  1  something is open or lost, or the question was answered with no: see the text
  2  wrong usage: an option, a file, or a sink or ledger that does not exist
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), could not do it, or told only a part
"""

EXAMPLES = """\
examples:
  pykafka-sink check --bootstrap-server localhost:9092 --topic events
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --json

`pykafka-sink COMMAND --help` explains each command. Words are completed by Tab after
`source <(pykafka-sink completion bash)`; zsh and fish have their own.
"""

PERF_CODES = """\
exit codes:
  0  all records are acknowledged
  2  wrong usage: an option, a file
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), or records were not delivered
"""

LEDGER = """\
Show the newest decision of each sink, and of each named batch write. It only reads; running queries are not disturbed.

  delivered  every row is visible to read_committed readers, once
  open       decided, not known to be finished. Normal for a moment while a query runs; if no query runs: recover
  lost       decided, but transactions had ended otherwise: rows are missing. Choose with resolve
  accepted   was lost; an operator went on without the missing rows
  replay     was lost; an operator has the query run the batch again

The age is by this machine's clock and by the clock of the driver that wrote the record.

examples:
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink ledger --bootstrap-server localhost:9092 --checkpoint /data/checkpoints/orders --json
  pykafka-sink ledger --properties client.properties --sink-id orders
"""

WATCH = """\
Watch a sink: its newest batches, rows per second, how old the last batch is, open transactions, and for each partition
how far the stable offset is behind the end: read_committed readers see nothing of what lies between. It only reads.

A terminal is drawn anew at each look (by rich, if pykafka-sink[watch] is installed). Into a file or a pipe goes one
line per look; with --json one object per line. Ctrl-C ends it.

examples:
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders --interval 60 >> orders.log
"""

RECOVER = """\
Finish an open decision without starting the query: commit the transactions that the ledger names, and record it.
Repeating it is harmless. It takes the driver's place for a moment; a query that runs notices at its next commit, reads
the ledger and goes on.

The transactions wait for at most their transaction.timeout.ms. If it has passed, the batch is lost, the exit code is 1,
and `resolve` is next.

What is open is shown first. On a terminal you are asked; --yes does not ask, and a script is never asked, because what
is decided has to be finished.

examples:
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink recover --bootstrap-server localhost:9092 --sink-id orders --yes
"""

RESOLVE = """\
Choose what becomes of a lost batch. The query stops at every start until you do; stop it first.

  --replay  the query runs the batch again at its next start. No row is missing; rows that are visible already appear
            twice
  --accept  the query goes on with the next batch. No row appears twice; the missing rows stay missing

A decision of another cluster, found in a ledger that was copied from there, is chosen about in the same way.

  --set-aside  for a record that cannot be read (`ledger` shows it): an empty one takes its place. What it said is not
               known then, so the sink counts as unknown; what that means is shown first

What is lost is shown before you are asked; --yes does not ask.

examples:
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink resolve --accept --bootstrap-server localhost:9092 --sink-id nightly --batch 2026-11-21 --yes
  pykafka-sink resolve --set-aside --bootstrap-server localhost:9092 --sink-id orders
"""

TRANSACTIONS = """\
Show the open transactions of tasks: a read_committed reader of their partitions waits until they end. While a query
runs its tasks have some. "decided" says that the ledger names the transaction: its rows are to become visible, so
nobody may abort it (recover commits it).

  --abort   commit what is decided, then abort all others of the sink. It takes the driver's place: stop the query
            first. Without it they end by themselves after their transaction.timeout.ms. It needs the ledger of the
            query: --ledger-topic, if the query has the option ledger.topic

examples:
  pykafka-sink transactions --bootstrap-server localhost:9092
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --abort
"""

PERF = """\
Write records to a topic as fast as possible, or at a pace, and print rates and latencies: the options and lines of
Kafka's kafka-producer-perf-test, for this producer. Options of the producer go into --option or a file.

Records are handed over as Arrow batches, as Spark hands them to the sink; all records of a batch have the latency of
the last one that is acknowledged.

examples:
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 1000000 --record-size 100
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 60000 --record-size 1000 \\
      --throughput 1000 --option kafka.compression.type=lz4 --print-metrics
"""

REPLAY = """\
Write dead letters again: each becomes the record that it was made of, with its key, value, headers and timestamp, in
the topic --to. The letters stay where they are.

A letter is written exactly once by a replay, whatever crashes: how far it has come is kept in the ledger, in the same
transaction as the records. The same words typed again go on where the last run ended, and write what has come since. A
replay is known by --from, --to and --filter together, or by --name; another name begins from the first letter.

Left out, and counted: letters that are too large to have kept their value, those that hold JSON of a row that did not
fit its schema, and records that are no letters. What is going to be written is shown before you are asked.

The principal needs Read on --from, Write on --to and on the ledger topic, and Write on the transactional id, which is
the name of the replay (replay-... unless --name says otherwise).

examples:
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders --dry-run
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders \\
      --filter 'reason=too large' --option kafka.max.request.size=8388608 --yes
"""

REPLAY_CODES = """\
exit codes:
  0  every letter was looked at, and written if it was chosen
  1  you were asked, and said no: nothing was written
  2  wrong usage: an option, a file, or a topic that does not exist; or a letter that cannot be sent
  3  no broker could be reached in time; what is committed stays, the same command goes on from there
  4  the brokers refused (credentials, permissions), or another run of this replay has taken over
"""

COMPLETION = """\
Print a script that completes commands, options and their values at Tab.

examples:
  pykafka-sink completion bash
  pykafka-sink completion zsh
  pykafka-sink completion fish

  source <(pykafka-sink completion bash)                                    # in ~/.bashrc
  source <(pykafka-sink completion zsh)                                     # in ~/.zshrc, after compinit
  pykafka-sink completion fish | source                                     # in ~/.config/fish/config.fish
"""

TOPIC = """\
Show partitions, replicas and configuration of a topic; with --create make it if it is missing, as topic.create=true of
a job does, and wait until every broker knows it. What will be made is shown before you are asked; --yes does not ask.
A topic that is there already is never changed: how it differs is said, with exit code 1.

  pykafka-sink topic --bootstrap-server localhost:9092 --topic events
  pykafka-sink topic --bootstrap-server localhost:9092 --topic events --create --partitions 6 --config retention.ms=-1
"""

CHECK = """\
Will a job with these options work here? Say so before it runs, in two seconds: brokers and login, topic, permissions,
transactions and their time limits, ledger, schema registry, versions, clocks.

Each line is asked of the real brokers. Nothing is written, unless --probe-write is given: then one record in a
transaction that is aborted.

  ✓  is as it should be; advice behind it would make it better
  !  works today, and will cost you a night
  ✗  will not work
"""

CHECK_CODES = """\
exit codes:
  0  all is well
  1  there are warnings
  2  something will not work, or an option is wrong

--json prints a list of objects with name, verdict (ok, warn or fail), text and advice.

examples:
  pykafka-sink check --bootstrap-server localhost:9092 --topic events --sink-id orders
  pykafka-sink check --properties job.properties --topic events --columns 'key STRING, value STRING' --probe-write
  pykafka-sink check --preset msk-serverless --explain
"""

SCHEMA_SHOW = """\
Print the schema that would be made of the columns and registered. No registry is asked.

examples:
  pykafka-sink schema show --format avro --record-name shop.Order --columns 'id BIGINT NOT NULL, name STRING'
  pykafka-sink schema show --format json-schema --columns orders.json --column address
"""

SCHEMA_CHECK = """\
Say whether columns fit the schema that they would be written by: the one that is given, or the one that the registry
has. Options are those of the Spark job. Nothing is registered; of a schema that is not, the text says whether it could
be.

examples:
  pykafka-sink schema check --format avro --topic orders --columns 'id BIGINT NOT NULL, name STRING' \\
      --option schema.registry.url=http://localhost:8081 --option use.latest.version=true
"""

SCHEMA_CODES = """\
exit codes:
  0  the columns fit
  1  they do not, or there is no schema for them: see the text
  2  wrong usage: an option, a file, or columns that cannot be read
  3  the registry could not be reached
  4  the registry refused (credentials, permissions)
"""

EXPLAIN = """\
Explain an error by its name: what happened, whether data is safe, what to do next. Without a name, list them all.

examples:
  pykafka-sink explain PKS-6001
  pykafka-sink explain
"""
