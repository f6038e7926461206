"""Histories (see `history.py`): the number under which each batch is sent, and how it ends, for any answer."""

from __future__ import annotations

from tests.unit.producer.engine.history import History, histories, in_transaction, plain, play


@histories("""
sequences grow by the number of records
    send send:3 send:2
    => 0/0 0/1 0/4 | open open open

five batches are in flight and succeed in order
    send send send send send send sent=5 ok@0 ok@1 ok@2 ok@3 ok@4 ok@5
    => 0/0 0/1 0/2 0/3 0/4 0/5 | 0 1 2 3 4 5

no more requests are in flight than allowed
    with max_in_flight_requests_per_connection=3
    send send send send sent=3 ok sent=4
    => 0/0 0/1 0/2 0/3 | 0 open open open

batches in flight on a lost connection are resent one after the other in order
    send send send lost 100ms sent=4 ok sent=5 ok ok
    => 0/0 0/1 0/2 0/0 0/1 0/2 | 0 0 0

new batches queue behind those that are resent
    send send lost send 100ms ok ok ok
    => 0/0 0/1 0/0 0/1 0/2 | 0 0 0

when the first of two fails both are resent in order with their old sequences
    send send not_leader out_of_order 100ms sent=3 ok@0 ok@1
    => 0/0 0/1 0/0 0/1 | 0 1

a duplicate is a success of unknown offset
    send lost 100ms duplicate send
    => 0/0 0/0 0/1 | -1 open

partitions with failures do not disturb the sequences of others
    send send/p1 out_of_order ok send/p1
    => 0/0 p1:0/0 p1:1/0 | open 0 open

only the partition that failed is tried again
    send send/p1 not_enough ok 100ms
    => 0/0 p1:0/0 0/0 | open 0

other partitions go on while one backs off
    with max_in_flight_requests_per_connection=1
    send not_enough send/p1 ok
    => 0/0 p1:0/0 | open 0

a retry waits for its back-off and not longer
    send not_enough due=100 ok
    => 0/0 0/0 | 0

retries work without idempotence
    with enable_idempotence=False
    send timed_out 100ms ok
    => -1/-1 -1/-1 | 0

without acknowledgements a batch is delivered when it is written and its offset is unknown
    with acks=0 enable_idempotence=False
    send
    => -1/-1 | -1
""")
def test_batches_in_flight(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
when the first batch is refused for good those behind it are renumbered and resent
    send send send refused out_of_order out_of_order 100ms ok@0 ok@1
    => 0/0 0/1 0/2 1/0 1/1 | failed 0 1

nothing is renumbered before the last answer of the partition is there
    send send send refused out_of_order 1000ms sent=3 out_of_order 1000ms
    => 0/0 0/1 0/2 1/0 | failed open open

a refused batch with nothing behind it costs an epoch and nothing else
    send refused send
    => 0/0 1/0 | failed open

a stale epoch told by a leader fails the batch and raises the epoch
    send stale_epoch send
    => 0/0 1/0 | failed open

a batch that may be in the log is resent with its old number before those behind it get new ones
    send send send after_append refused out_of_order 100ms sent=4 ok@0 ok@1
    => 0/0 0/1 0/2 0/0 1/0 | 0 failed 1

a leader that does not have the doubtful batch lets it be renumbered too
    send send send after_append refused out_of_order 100ms out_of_order 200ms ok@0 ok@1
    => 0/0 0/1 0/2 0/0 1/0 1/1 | 0 failed 1

a batch that is asked about before the head of its queue keeps its own back-off
    send send send refused out_of_order lost 100ms not_enough sent=4 due=200 sent=5 out_of_order ok@0 400ms ok@1
    => 0/0 0/1 0/2 0/2 0/2 1/0 1/1 | failed 0 1

a leader that took a later batch as the first one, as a topic made anew does, is not given it again
    with delivery_timeout_ms=10000
    send send send lost 100ms out_of_order 200ms sent=5 duplicate ok@2
    => 0/0 0/1 0/2 0/0 0/1 0/2 | doubtful -1 2

out of order for the next expected batch is a gap and raises the epoch
    send ok send:2 out_of_order 100ms ok@7 send
    => 0/0 0/1 1/0 1/2 | 0 7 open

a gap waits for the batch behind it that is in flight before the epoch is raised
    send send out_of_order 100ms sent=2 out_of_order 100ms ok@0 ok@1
    => 0/0 0/1 1/0 1/1 | 0 1

a batch in flight behind a gap that fails for good does not stop the new epoch
    send send out_of_order refused 100ms ok
    => 0/0 0/1 1/0 | 0 failed

without idempotence out of order is an error like any other
    with enable_idempotence=False
    send out_of_order
    => -1/-1 | failed

an unknown producer id raises the epoch when records are lost
    send ok@5 send forgot@0 100ms ok@11
    => 0/0 0/1 1/0 | 5 11

an unknown producer id raises the epoch when retention took the records
    send ok@5 send forgot@10 100ms ok@11
    => 0/0 0/1 1/0 | 5 11

an unknown producer id without a log start is tried again as it is
    send ok@5 send forgot 100ms
    => 0/0 0/1 0/1 | 5 open

a leader that forgot the producer may have an earlier try in its log all the same
    send timed_out 100ms forgot@0 200ms send ok@5
    => 0/0 0/0 1/0 | doubtful 5

of several batches only those that surely are not in the log are renumbered
    send ok@5 send send timed_out forgot@0 100ms sent=4 forgot@0 ok@6
    => 0/0 0/1 0/2 0/1 1/0 | 5 doubtful 6

an acknowledgement that comes after the producer was forgotten for another batch counts
    send ok@5 send send forgot@0 ok@6 100ms ok@7 send
    => 0/0 0/1 0/2 1/0 1/1 | 5 7 6 open

all batches in flight that meet the unknown producer id come through in order
    send ok@5 send send forgot@10 forgot@10 100ms ok@10 ok@11
    => 0/0 0/1 0/2 1/0 1/1 | 5 10 11

a broker that forgot the producer says nothing of a batch that was lost with its connection
    send lost 100ms forgot@3
    => 0/0 0/0 | doubtful
""")
def test_refusals_and_gaps(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
a batch whose last connection was lost is reported as perhaps in the log
    with retries=0
    send send/p1 lost says:"may be in the log"
    => 0/0 p1:0/0 | doubtful doubtful

a doubt from an early try outlives a clear refusal of the last one
    with retries=1
    send after_append 100ms not_enough
    => 0/0 0/0 | doubtful

a doubtful batch given up for good leaves its doubt to the batch behind it
    send send server_error send sent=2 ok
    => 0/0 0/1 0/2 | doubtful 0 open

a batch that is answered with a code newer than the client may be in the log
    send newer says:"UNKNOWN_CODE_4711" says:"may be in the log"
    => 0/0 | doubtful

a doubtful batch given up and a gap behind it raise the epoch
    send send server_error out_of_order 100ms ok
    => 0/0 0/1 1/0 | doubtful 0

a doubtful batch given up with nothing behind it raises the epoch at once
    with retries=0
    send lost send 100ms
    => 0/0 1/0 | doubtful open

a lost batch that was not written makes those behind it wait and all keep their numbers
    send:2 send:2 send:2 send:2 send:2 timed_out out_of_order out_of_order out_of_order out_of_order rest
    => 0/0 0/2 0/4 0/6 0/8 0/0 0/2 0/4 0/6 0/8 | 0 0 0 0 0

the connection may be lost again and again
    send send send lost 1000ms lost 1000ms lost 1000ms rest
    => 0/0 0/1 0/2 0/0 0/0 0/0 0/1 0/2 | 0 0 0
""")
def test_batches_that_may_be_in_the_log(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
the engine wakes up for the next expiry
    send 4000ms send due=6000 due=4000
    => 0/0 0/1 | expired? expired?

age counts from the first record and not from the append
    old:3000 due=7000
    => 0/0 | expired?

the largest time-out does not overflow
    with delivery_timeout_ms=2147483647
    send 29000ms ok
    => 0/0 | 0

an answer in the very step of the expiry still counts
    send tick:10000 ok
    => 0/0 | 0

a retriable answer at the end of the time is the last word
    send tick:10000 not_enough 60000ms says:"NOT_ENOUGH_REPLICAS"
    => 0/0 | expired

what is given up while it waits for another try says why the last one failed
    send 9900ms not_enough 100ms says:"the last try failed: NOT_ENOUGH_REPLICAS"
    => 0/0 | expired

what is given up without a try says which connection does not come about
    down lost send 1000ms 9000ms
    says:"(0 attempts; waiting to be sent): connection to host0:9092 (bootstrap server) could not be established"
    => | expired

a flush ends when the last batch has expired
    send flush waits 10000ms
    => 0/0 | expired? done

a late success changes the result of an expired batch no more
    send:2 10000ms ok 5000ms
    => 0/0 | expired?

a late error changes it no more
    send:2 10000ms not_leader 5000ms
    => 0/0 | expired?

an expired batch is not split
    send:2 10000ms too_large 5000ms
    => 0/0 | expired?

an expired batch is not renumbered
    send:2 10000ms out_of_order 5000ms
    => 0/0 | expired?

a late doubt changes it no more
    send:2 10000ms after_append 5000ms
    => 0/0 | expired?

with one request in flight the next batch waits for the late answer
    with max_in_flight_requests_per_connection=1 enable_idempotence=False
    send 5000ms send 5000ms sent=1 ok sent=2 ok
    => -1/-1 -1/-1 | expired? 0

a batch that expires before it was sent leaves the sequences alone
    with max_in_flight_requests_per_connection=1
    send old:5000 5000ms ok send
    => 0/0 0/1 | 0 expired open

after a sent batch expired no new number is given until those behind it are answered
    send 1000ms send 9000ms send
    => 0/0 0/1 | expired? open open

success of a later batch proves that the expired one is in the log and keeps the epoch
    send 1000ms send 9000ms send ok ok@1 ok@2
    => 0/0 0/1 0/2 | expired? 1 2

a later batch that is out of order proves a gap and raises the epoch
    send 1000ms send 9000ms not_leader out_of_order 100ms ok
    => 0/0 0/1 1/0 | expired? 0

only the batch right behind the expired one can prove a gap
    send 1000ms send send 9000ms not_leader not_leader out_of_order 100ms ok@1 ok@2
    => 0/0 0/1 0/2 0/1 0/2 | expired? 1 2

when all sent batches expire the next one starts a new epoch
    send 1000ms send 9000ms 1000ms send
    => 0/0 0/1 1/0 | expired? expired? open

other partitions do not notice the uncertainty
    send 1000ms send 9000ms send/p1
    => 0/0 0/1 p1:0/0 | expired? open open

a late success of the last batch of the old epoch does not disturb the new one
    send:3 10000ms send ok@0 ok@3 send
    => 0/0 1/0 1/1 | expired? 3 open

a batch refused before it expired is certainly not in the log and those behind it are renumbered
    send 1000ms send 8999ms not_enough 1ms out_of_order 100ms ok
    => 0/0 0/1 1/0 | expired 0

an expired batch that waited for another try leaves a doubt if its try did
    send down lost 10000ms
    => 0/0 | expired?

a batch that was lost with its connection gets no new number, for both may still lie in a socket
    send 1000ms send down lost 9000ms up 100ms out_of_order says:"can arrive late"
    => 0/0 0/1 0/1 | expired? doubtful

an append in the step after an expiry is accepted
    send 10000ms send ok ok
    => 0/0 1/0 | expired? 0

first batches that expired here but arrived there are proven by the later success
    send send send 1000ms send 9000ms lost send 100ms sent=5 ok
    => 0/0 0/1 0/2 0/3 0/3 0/4 | expired? expired? expired? 0 open

a later duplicate proves them too
    send 1000ms send 9000ms lost send 100ms sent=3 duplicate
    => 0/0 0/1 0/1 0/2 | expired? -1 open
""")
def test_batches_that_expire(history: History) -> None:
    assert (
        play(plain({"delivery_timeout_ms": 10_000, "request_timeout_ms": 30_000, **history.options}), history)
        == history.outcome
    )


@histories("""
a single record that is too large fails alone and what is behind it goes on
    send send too_large says:"max.message.bytes" out_of_order 100ms ok
    => 0/0 0/1 1/0 | failed 0

batches in flight behind the whole follow its parts in order
    send:4 send:2 too_large out_of_order rest
    => 0/0 0/4 0/0 0/2 0/4 | 0+0 0

a flush waits for the parts
    send:4 flush too_large waits ok waits rest
    => 0/0 0/0 0/2 | 0+0 done

a split does not count as a retry
    with retries=0
    send:2 too_large ok@0 ok@1
    => 0/0 0/0 0/1 | 0+1

the parts are as old as the whole
    with delivery_timeout_ms=10000
    send:2 6000ms too_large due=4000
    => 0/0 0/0 | expired?+expired

a part given up after a doubtful send of the whole is reported as perhaps in the log
    with delivery_timeout_ms=10000
    send:2 after_append 100ms too_large 10000ms
    => 0/0 0/0 0/0 | expired?+expired?

parts of a whole that may be in the log are given up rather than written twice
    send:2 send after_append after_append 100ms too_large out_of_order out_of_order ok send
    => 0/0 0/2 0/0 0/0 0/1 0/2 0/3 | doubtful+doubtful 0 open

parts of a whole that did not arrive are delivered
    send:2 lost 100ms too_large rest
    => 0/0 0/0 0/0 0/1 | 0+0
""")
def test_batches_that_are_too_large(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
a flush with nothing to wait for ends at once
    flush
    => | done

a flush ends when all that was appended before it has ended
    send send/p1 flush send ok waits refused
    => 0/0 p1:0/0 0/1 | 0 failed done open

several flushes end each at its own time
    send flush send flush ok
    => 0/0 0/1 | 0 done open waiting

a flush waits for batches that are tried again
    send flush lost waits 1000ms ok
    => 0/0 0/0 | 0 done

a graceful close sends what is queued and then ends
    with max_in_flight_requests_per_connection=1
    send send close fatal ok waits ok@1
    => 0/0 0/1 | 0 1 done

a batch appended after the end fails
    close send
    => | done failed

abandoning fails what is queued and what is on the wire
    with max_in_flight_requests_per_connection=1
    send send flush abandon says:"enough"
    => 0/0 | doubtful failed done
""")
def test_flush_and_end(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
one fatal answer ends the producer and what is in flight fails as perhaps written
    send send send/p1 fenced fatal send flush
    => 0/0 0/1 p1:0/0 | failed doubtful doubtful failed done

a fatal answer behind a success takes nothing back
    send send ok@5 fenced fatal close
    => 0/0 0/1 | 5 failed done

after a fatal answer nothing is sent and no epoch is raised
    with max_in_flight_requests_per_connection=1
    send send send/p1 fenced fatal 60000ms sent=1
    => 0/0 | failed failed failed

a batch that waits for another try fails with the producer
    send timed_out send/p1 fenced fatal
    => 0/0 p1:0/0 | doubtful failed

without idempotence no answer is fatal
    with enable_idempotence=False
    send fenced sound send
    => -1/-1 -1/-1 | failed open
""")
def test_a_fatal_answer_without_a_transaction(history: History) -> None:
    assert play(plain(history.options), history) == history.outcome


@histories("""
a failed batch and the one behind it are resent in order with their old sequences
    send:2 send not_leader out_of_order rest sound
    => 0/0 0/2 0/0 0/2 | 0 0

a duplicate counts as written
    send after_append 100ms duplicate commit
    => 0/0 0/0 | -1 done

commit waits until the resends are through
    send send send commit lost 100ms waits rest
    => 0/0 0/1 0/2 0/0 0/1 0/2 | 0 0 0 done

commit waits for records that are queued and on the wire
    with max_in_flight_requests_per_connection=1
    send send send/p1 commit waits ok 5000ms waits rest
    => 0/0 0/1 p1:0/0 | 0 0 0 done

commit sends records that had not left yet
    lost down send commit 100ms sent=0 up 5000ms rest
    => 0/0 | 0 done

a batch that is too large is split under its sequences and the transaction commits
    send:4 send too_large out_of_order rest commit
    => 0/0 0/4 0/0 0/2 0/4 | 0+0 0 done

one record too large for the broker forbids the commit
    send too_large says:"max.message.bytes" commit
    => 0/0 | failed aborted

a flush ends with the transaction that its records belonged to
    send flush commit waits rest
    => 0/0 | 0 done done

with one request in flight transactions work too
    with max_in_flight_requests_per_connection=1
    send send/p1 sent=1 commit ok ok
    => 0/0 p1:0/0 | 0 0 done

prepare waits for every record and called again gives the same end
    send send/p1 prepare prepare ok waits rest
    => 0/0 p1:0/0 | 0 0 done done
""")
def test_batches_in_a_transaction(history: History, transaction_version: int) -> None:
    assert play(in_transaction(transaction_version, history.options), history) == history.outcome


@histories("""
a gap dooms the transaction and nothing is renumbered
    send ok send out_of_order doomed abort begin send
    => 0/0 0/1 1/0 | 0 failed done done open

a refused batch dooms the transaction and those behind it are dropped
    send send refused doomed out_of_order 1000ms says:"dropped" commit abort
    => 0/0 0/1 | failed failed aborted done

the answer of a batch on the wire is awaited after another has failed
    send send/p1 refused abort waits ok
    => 0/0 p1:0/0 | failed 0 done

a second failure during the abort does not hang it
    send send/p1 refused abort refused 1000ms
    => 0/0 p1:0/0 | failed failed done

a record that waits for another try is dropped when the transaction is doomed
    send not_enough send/p1 refused 1000ms abort
    => 0/0 p1:0/0 | failed failed done

a producer that is fenced is at its end and everything in flight fails
    send send/p1 fenced fatal abort
    => 0/0 p1:0/0 | failed doubtful PKS-5001

retries used up with a doubt doom the transaction
    with retries=0
    send after_append doomed
    => 0/0 | doubtful

retries used up forbid the commit
    with retries=1
    send not_enough 1000ms not_enough commit
    => 0/0 0/0 | failed aborted

commit called again after the transaction failed in between tells the failure
    send commit refused commit says:"INVALID_RECORD" abort
    => 0/0 | failed aborted aborted done

a record that fails while preparing ends prepare with the reason
    send prepare refused abort
    => 0/0 | failed aborted done

a transaction that is being prepared can be aborted and not committed
    send prepare commit abort ok
    => 0/0 | 0 aborted PKS-5006 done
""")
def test_what_dooms_a_transaction(history: History, transaction_version: int) -> None:
    assert play(in_transaction(transaction_version, history.options), history) == history.outcome


@histories("""
a record dropped by an abort ends at once and those on the wire are waited for
    with max_in_flight_requests_per_connection=1
    send send abort waits ok
    => 0/0 | 0 failed done

a record on the wire that would be tried again is dropped by an abort
    send abort not_leader 1000ms
    => 0/0 | doubtful done

after an abort without an error the sequences start at zero in a new epoch
    send:3 ok abort begin send
    => 0/0 1/0 | 0 done done open

an answer after the abort was asked for delivers and changes nothing
    send abort ok 1000ms begin send
    => 0/0 1/0 | 0 done done open

an abort waits for the late success of an expired batch
    send 10000ms abort waits ok begin sound send
    => 0/0 1/0 | expired? done done open

an abort waits for its late error
    send 10000ms abort waits invalid_state begin sound send
    => 0/0 1/0 | expired? done done open

an abort waits for its late gap
    send 10000ms abort waits out_of_order begin sound send
    => 0/0 1/0 | expired? done done open

an abort waits for its late wish for another try
    send 10000ms abort waits not_leader begin sound send
    => 0/0 1/0 | expired? done done open

a sent batch that expires forbids the commit even if it is acknowledged later
    send 10000ms ok commit
    => 0/0 | expired? aborted

unknown sequences are left behind by the abort and the next transaction starts at zero
    send 5000ms send not_leader 5000ms lost 1000ms abort begin send
    => 0/0 0/1 1/0 | expired? doubtful done done open

a record that was never sent and expires forbids the commit
    lost down send 10000ms commit abort
    => | expired aborted done

a record that expires while the commit waits for it fails the commit
    lost down send commit 10000ms abort
    => | expired aborted done

several records that expire at once fail one by one
    lost down send send/p1 send 10000ms abort
    => | expired expired expired done

a record resent until it expires dooms the transaction and not the producer
    send timed_out due=100 timed_out due=200 timed_out 10000ms abort 1000ms begin send ok commit
    => 0/0 0/0 0/0 1/0 | expired? done done 0 done

a flush ends when the records of a doomed transaction are dropped
    lost down send flush abort
    => | failed done done
""")
def test_an_abort_and_records_that_expire(history: History, transaction_version: int) -> None:
    assert (
        play(in_transaction(transaction_version, {"delivery_timeout_ms": 10_000, **history.options}), history)
        == history.outcome
    )


@histories("""
nothing is renumbered even if retention took all that was written
    send ok@10 send send forgot@11 doomed forgot@11 commit abort begin send
    => 0/0 0/1 0/2 1/0 | 10 failed failed aborted done done open

a batch on the wire behind it keeps its number whatever its answer
    send ok@10 send send forgot@11 doomed ok@11 abort begin send
    => 0/0 0/1 0/2 1/0 | 10 failed 11 done done open

batches that may arrive late keep their numbers
    send ok@10 send send lost 100ms forgot@11 doomed says:"may be in the log" abort
    => 0/0 0/1 0/2 0/1 | 10 doubtful doubtful done

an unknown producer id without a log start is tried again as it is
    send forgot rest
    => 0/0 0/0 | 0

lost records doom the transaction
    send ok@10 send forgot@10 doomed
    => 0/0 0/1 | 10 failed
""")
def test_a_leader_that_forgot_the_producer_of_a_transaction(history: History) -> None:
    assert play(in_transaction(1, history.options), history) == history.outcome
