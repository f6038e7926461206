"""The --help texts of commands: what each does, examples, exit codes."""

from __future__ import annotations

ABOUT = """\
Inspect and repair the decisions of the Spark sink format("pykafka-sink"). Check whether a job will work (check), or
measure how fast the producer writes (perf).

With exactly-once, one record in a ledger topic decides each batch. Then the driver commits the batch's transactions,
and a second record closes the decision. If the driver dies in between, the decision stays open. The next start of the
query or `recover` completes it, as long as the transactions have not timed out. If they have, rows are missing and you
must choose with `resolve`.
"""

CODES = """\
exit codes:
  0  nothing is open, or the command completed it
  1  something is open or lost, or you answered no: see the text
  2  wrong usage: an option, a file, or a sink or ledger that does not exist
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), failed, or returned only a part
"""

EXAMPLES = """\
examples:
  pykafka-sink status --bootstrap-server localhost:9092
  pykafka-sink check --bootstrap-server localhost:9092 --topic events
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --json

`pykafka-sink COMMAND --help` explains each command. Run `source <(pykafka-sink completion bash)` for completion
with Tab; there are scripts for zsh and fish, too.
"""

PERF_CODES = """\
exit codes:
  0  all records are acknowledged
  2  wrong usage: an option, a file
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), or records were not delivered
"""

STATUS = """\
Look at all sinks of a cluster, in all of its ledger topics, and say whether anything is wrong. The first command to run
when you are called; made for cron, too. It only reads.

Found and told, with the command that mends it:
  act now  a decision that is open for a minute and will be lost, or is overdue; a lost batch; a record that cannot be
           read; a transaction that hangs for ever: an abort could hide delivered rows, so Kafka's command for it is
           named only if that is known to be safe
  look     a stream that is silent; a transaction, of a sink or of another application, that has used more than half of
           its time while readers of a sink's topic wait; a ledger that was copied

What may end by itself is told only if a second look, a second later, finds it again, so a query that runs is fine at
every moment. Ledger topics are recognised by their content (compacted, one partition).

With --serve the command does not end: it looks every 15 seconds and serves what it sees to Prometheus at /metrics, and
as the object of --json at /status.json. It needs no job that lives, and goes on when brokers come and go.

examples:
  pykafka-sink status --bootstrap-server localhost:9092
  pykafka-sink status --properties client.properties --silent-after 3600 --retired orders-old --json
  pykafka-sink status --bootstrap-server localhost:9092 --serve 9464 --host 0.0.0.0
"""

STATUS_CODES = """\
exit codes:
  0  fine
  1  look: something is not as it should be
  2  act now: rows are lost, or will be; or wrong usage (an option, a file, no ledger or topic)
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), failed, or returned only a part
"""

READERS = """\
Show for each partition of a topic what read_committed readers see: the offset that a group has committed, the stable
offset (they see nothing behind it), the offset of the last record that they see, and the end of the log. Markers of
transactions take offsets, too, so a reader that has read everything may seem to lag: "caught up, only markers remain".
If readers wait, the transaction is named, for how long it has been open, and when it ends at the latest.

examples:
  pykafka-sink readers --bootstrap-server localhost:9092 --topic events
  pykafka-sink readers --bootstrap-server localhost:9092 --topic events --group billing --json
"""

LEDGER = """\
Show the latest decision of each sink and of each named batch write. The command only reads and does not affect queries.

  delivered  every row is visible to read_committed readers, once
  open       decided, not known to be finished, and in time. Normal for a moment while a query runs; if no query runs,
             use recover
  committed  fully committed, which the ledger has not been told yet: the next commit tells it, or recover
  overdue    decided, and transactions have ended, or should have: rows may be missing. recover finds out
  lost       decided, but transactions ended without a commit: rows are missing. Use resolve
  accepted   was lost; an operator continued without the missing rows
  replay     was lost; an operator chose to run the batch again

The age is the difference between this machine's clock and the clock of the driver that wrote the record.

examples:
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink ledger --bootstrap-server localhost:9092 --checkpoint /data/checkpoints/orders --json
  pykafka-sink ledger --properties client.properties --sink-id orders
"""

WATCH = """\
Watch all sinks of a cluster: what `status` finds, with the command that mends it, and for each sink its newest batch,
rows per second, the age of the batch and open transactions. With --sink-id or --checkpoint one sink: its latest
batches, and for each partition the lag of the last stable offset. read_committed readers do not see records after that
offset. The command only reads.

On a terminal each refresh redraws the screen (in colours, if pykafka-sink[watch] is installed). In a file or a pipe
each refresh is one line; with --json one object per line. Ctrl-C ends the command.

examples:
  pykafka-sink watch --bootstrap-server localhost:9092
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders --interval 60 >> orders.log
"""

RECOVER = """\
Complete an open decision without starting the query: commit the transactions that the ledger names, and record this.
The command can be repeated safely. It takes over from the driver for a moment. A running query detects this at its next
commit, reads the ledger and continues.

Transactions stay open for at most their transaction.timeout.ms. After that the batch is lost, and the exit code is 1;
use `resolve` then.

The command shows open decisions first. On a terminal it asks for confirmation, unless --yes is given. It never asks in
a script, because a decided batch must be completed. --all does this for every open decision in the default ledger and
in the one that --ledger-topic names, one after the other. Of other topics that look like ledgers it only tells.

examples:
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink recover --bootstrap-server localhost:9092 --sink-id orders --yes
  pykafka-sink recover --bootstrap-server localhost:9092 --all
"""

RESOLVE = """\
Choose what to do with a lost batch. Until you choose, the query stops at every start. Stop the query first.

An open decision is completed first, as by recover: that shows whether its batch is lost. If it is not, nothing has to
be chosen.

  --replay  the query runs the batch again at its next start. No row is missing; rows that are already visible appear
            twice
  --accept  the query continues with the next batch. No row appears twice; the missing rows stay missing

The same choice applies to a decision of another cluster, if the ledger was copied from there.

  --set-aside  for a record that cannot be read (`ledger` shows it): replace it with an empty record. Its content is
               lost, so the ledger no longer knows the sink; the command shows the consequences first

The command shows the lost rows before it asks; with --yes it does not ask.

examples:
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink resolve --accept --bootstrap-server localhost:9092 --sink-id nightly --batch 2026-11-21 --yes
  pykafka-sink resolve --set-aside --bootstrap-server localhost:9092 --sink-id orders
"""

TRANSACTIONS = """\
Show the open transactions of tasks. read_committed readers of their partitions wait until these transactions end. A
running query normally has some. "decided" means that the ledger names the transaction: its rows must become visible,
so do not abort it (recover commits it). A question mark: a ledger record of the sink cannot be read.

  --abort   commit decided transactions, then abort all others of the sink. Stop the query first. Without --abort the
            transactions end after their transaction.timeout.ms. If the query sets the option ledger.topic, pass the
            same topic with --ledger-topic

The command first shows when the sink was last at work: its newest claim and decision, how long its transactions have
been open, and whether their producers write (it looks twice, a second apart). It asks before it acts; if a query seems
to run, it asks for the words "take over". --yes does not ask, for scripts. Without a terminal, --yes is needed.

A query that runs nevertheless is not harmed, but stopped: what its tasks are writing is aborted, and it ends with
CommitAborted at its next commit. No row is lost or doubled. Start it again, and it writes that batch again.

With --transactional-id, a transaction of another application is aborted, and the producer that has it open is fenced:
it fails at its next request. Ask its owner first.

examples:
  pykafka-sink transactions --bootstrap-server localhost:9092
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --abort
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --abort --yes
"""

PERF = """\
Write records to a topic as fast as possible or at a fixed rate, and print rates and latencies. Options and output are
those of Kafka's kafka-producer-perf-test. Set producer options with --option or in a file.

The producer receives records as Arrow batches, as the sink does from Spark. All records of a batch have the latency of
the last acknowledged record.

examples:
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 1000000 --record-size 100
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 60000 --record-size 1000 \\
      --throughput 1000 --option kafka.compression.type=lz4 --print-metrics
"""

REPLAY = """\
Write dead letters again: each letter becomes the original record, with its key, value, headers and timestamp, in the
topic --to. The letters stay in their topic. A record goes to the partition that its row has named, or else to that of
its key: a partitioner of your own is not applied.

The records are behind all that was written since. In a compacted topic, or a topic of changes, an old value becomes the
newest of its key: choose letters with --filter, or write the present state with a query. If --to is compacted the
command says so and asks for words instead of a yes.

A replay writes each letter exactly once, even after a crash: the ledger stores its progress in the same transaction as
the records. The same command continues where the last run ended, and also writes newer letters. A replay is identified
by --from, --to and --filter together, or by --name; a new name starts from the first letter.

These are skipped and counted: letters without a value because it was too large, letters with the JSON of a row that did
not fit its schema, and records that are not letters. The command shows what it will write before it asks.

The principal needs Read on --from, Write on --to, Read and Write on the ledger topic, and Write on the transactional
id, which is the name of the replay (replay-... unless --name is given).

examples:
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders --dry-run
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders \\
      --filter 'reason=too large' --option kafka.max.request.size=8388608 --yes
"""

REPLAY_CODES = """\
exit codes:
  0  every letter was read, and written if it was selected
  1  you answered no: nothing was written
  2  wrong usage: an option, a file, or a topic that does not exist
  3  no broker could be reached in time; committed records stay, and the same command continues from there
  4  the brokers refused (credentials, permissions), a letter cannot be sent, or another run of this replay has taken
     over; committed records stay
"""

COMPLETION = """\
Print a shell script that completes commands, options and their values with the Tab key.

examples:
  pykafka-sink completion bash
  pykafka-sink completion zsh
  pykafka-sink completion fish

  source <(pykafka-sink completion bash)                                    # in ~/.bashrc
  source <(pykafka-sink completion zsh)                                     # in ~/.zshrc, after compinit
  pykafka-sink completion fish | source                                     # in ~/.config/fish/config.fish
"""

TOPIC = """\
Show partitions, replicas and configuration of a topic. With --records, also show what is in it, for a first look; bytes
that are not UTF-8 are escaped. With --create, create it if it is missing, as topic.create=true of a job does, and wait
until every broker knows it. The command shows the new topic before it asks; --yes does not ask. An existing topic is
never changed: the command shows the differences, with exit code 1.

  pykafka-sink topic --bootstrap-server localhost:9092 --topic events --records 5
  pykafka-sink topic --bootstrap-server localhost:9092 --topic events --create --partitions 6 --config retention.ms=-1
"""

CHECK = """\
Check in two seconds whether a job with these options will work here: brokers and login, topic, replicas, permissions,
quotas, transactions and their time limits, ledger, schema registry, versions, clocks.

Each line is a check against the real brokers. Nothing is written unless --probe-write is given: it writes one record
in a transaction and aborts it. Commands in the advice are complete and can be pasted.

  ✓  works; the advice after it is an improvement
  !  works today, but is likely to cause a failure later
  ✗  will not work
"""

CHECK_CODES = """\
exit codes:
  0  all checks passed
  1  there are warnings
  2  a check failed, or an option is wrong

--json prints a list of objects with name, verdict (ok, warn or fail), text and advice.

examples:
  pykafka-sink check --bootstrap-server localhost:9092 --topic events --sink-id orders
  pykafka-sink check --properties job.properties --topic events --columns 'key STRING, value STRING' --probe-write
  pykafka-sink check --properties job.properties --topic events --sink-id orders --batch-minutes 20
  pykafka-sink check --preset msk-serverless --explain
"""

SCHEMA_SHOW = """\
Print the schema that the sink would derive from the columns and register. With schema.registry.url and --topic, the
rules of the subject's newest version go to standard error: a new version inherits them. Nothing is registered.

examples:
  pykafka-sink schema show --format avro --record-name shop.Order --columns 'id BIGINT NOT NULL, name STRING'
  pykafka-sink schema show --format json-schema --columns orders.json --column address
"""

SCHEMA_CHECK = """\
Check whether columns fit the schema for the write: the given schema, or the schema in the registry. The options are
those of the Spark job. Nothing is registered. If a schema is not registered, the text says whether it could be. Rules
of the schema are listed; those for writers are refused, unless the options have schema.rules=ignore.

examples:
  pykafka-sink schema check --format avro --topic orders --columns 'id BIGINT NOT NULL, name STRING' \\
      --option schema.registry.url=http://localhost:8081 --option use.latest.version=true
"""

SCHEMA_CODES = """\
exit codes:
  0  the columns fit
  1  the columns do not fit, or there is no schema for them: see the text
  2  wrong usage: an option, a file, or columns that cannot be read
  3  the registry could not be reached
  4  the registry refused (credentials, permissions)
"""

EXPLAIN = """\
Explain an error by its name: what happened, whether data is safe, what to do next. Without a name, list all errors.

examples:
  pykafka-sink explain PKS-6001
  pykafka-sink explain
"""
