"""Histories (see `commit_history.py`): who commits which batch, what happens meanwhile, and how it ends."""

from __future__ import annotations

from tests.unit.commit.commit_history import check
from tests.unit.commit.driver_bench import Bench
from tests.unit.producer.engine.history import History, histories


@histories("""
c0 a later batch without rows asks nobody anything
    write:1,0 commit:1=nothing times=0

c0 a streams first batch is recorded without rows too and the next one is not taken for strange
    write:0,0 commit:0=delivered ledger=done batch=0 times:"commit transaction"=0
    write/2:0,0 commit/2:0=already commit/2b:1=delivered visible=1,1 ledger=done

c1 the second batch of a process neither fences nor reads again
    commit:0=delivered forget commit:1=delivered times:"fence older drivers"=0 times:"read ledger"=0 visible=2,2

c1 a quota that answers without any partition is waited for and hides no decision
    commit:0=delivered gets:"read ledger",89,89 commit/2:0=already visible=1,1 ledger=done tasks/2:0=aborted

c1 a batch that an earlier run delivered is skipped and its second writing aborted
    commit:0=delivered commit/2:0=already visible=1,1 ledger=done tasks/2:0=aborted

c1 an open decision about another batch is finished and this batch goes on
    gets:"commit transaction",lost* gets:"write ledger record",-,lost* commit:0=pending
    commit/2:1=delivered visible=2,2 ledger=done batch=1

c1 a checkpoint that was rolled back is refused
    commit:0=delivered commit:1=delivered
    commit/2:0=refused error=PKS-6003 says:"rolled back" says:"batch 1 of query" tasks/2:0=open

c1 a stream that has run before is refused by an empty ledger
    commit:7=refused error=PKS-6005 says:"ledger was deleted"

c1 a stream that has run before goes on with an empty ledger when told so
    with accept_unknown_sink=True
    commit:7=delivered

an unknown sink is told to look for decisions under its old name first
    commit:3=refused
    says:"first look at `pykafka-sink ledger --bootstrap-server HOST:PORT --ledger-topic ledger`"

c2 a transaction that timed out before the decision aborts the batch and the others
    write:0 timeout:0 commit:0=refused error=PKS-6001 says:"Nothing of it is visible"
    tasks:0=aborted ledger=empty

c2 without describe transactions only the time is checked and that is said
    gets:"describe transactions",unsupported commit:0=delivered says:"DescribeTransactions"

a batch that was decided and cannot be finished makes the next one wait
    gets:"commit transaction",lost* commit:0=pending gets:"commit transaction",lost* commit/2:1=pending
    error=PKS-6015 says:"was decided earlier and is not finished" says:"nothing of it is visible and it may run again"
""")
def test_before_the_decision(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
c3 a driver that another run has fenced touches nothing and says who took over
    commit:0=delivered settle gets:"read ledger",29 commit/2:1=refused forget
    commit:1=refused says:"its run 2222222222222222" times:"fence older drivers"=0
    tasks:1=open identity=none

c3 a decision in doubt that never arrived is pending and abort makes sure that it never will
    gets:"end ledger transaction",lost* commit:0=pending error=PKS-6012 says:"is not known"
    abort:0=aborted tasks:0=aborted commit/2:0=delivered visible=1,1 ledger=done

c3 a decision in doubt that arrived is pending and abort leaves everything alone
    gets:"end ledger transaction",after,lost* commit:0=pending error=PKS-6012 says:"is not known"
    abort:0=left tasks:0=open commit/2:0=already visible=1,1 ledger=done

c3 a permission that is lost after an unknown answer leaves the decision in doubt and abort leaves everything alone
    gets:"end ledger transaction",after,53* commit:0=pending error=PKS-6012 says:"is not known"
    abort:0=left tasks:0=open commit/2:0=already visible=1,1 ledger=done

c3 a permission that is lost for a moment after an unknown answer is waited for
    gets:"end ledger transaction",after,53,31 commit:0=delivered visible=1,1 ledger=done

c3 fenced after an unknown answer asks the log whether the decision was made and it was
    fenced:"end ledger transaction",1 gets:"end ledger transaction",after commit:0=delivered visible=1,1
    times:"ask what readers see"=1 times:"fence older drivers"=2 ledger=done

c3 fenced after an unknown answer asks the log again when a quota is used up
    fenced:"end ledger transaction",1 gets:"end ledger transaction",after gets:"ask what readers see",89,89
    commit:0=delivered visible=1,1 times:"ask what readers see"=3 ledger=done

c3 fenced after an unknown answer asks the log and decides once more as it was not and nobody has claimed
    fenced:"end ledger transaction",1 gets:"end ledger transaction",lost commit:0=delivered
    times:"ask what readers see"=1 times:"fence older drivers"=2 visible=1,1 ledger=done

a driver whose time is up while it looks whether it was fenced says so
    gets:"end ledger transaction",-,lost,90 gets:"ask what readers see",lost* commit:0=pending
    says:"could not be updated: no time left"

c4 an id that may not be used leaves the decision open and names what is missing
    gets:"commit transaction",53 commit:0=pending says:"-0-0: EndTxn was answered with TRANSACTIONAL_ID"
    tasks:0=committed,open
    commit/2:0=already visible=1,1 ledger=done

c4 a missing permission leaves the decision open and names what is missing
    gets:"commit transaction",refused commit:0=pending says:"TransactionalId" tasks:0=committed,open
    commit/2:0=already visible=1,1 ledger=done

c5 a done record that cannot be written is pending and the next run writes it
    gets:"write ledger record",-,29 commit:0=pending error=PKS-6013 says:"is committed and visible"
    commit/2:0=already visible=1,1 ledger=done

a decision that is too large for the ledger topic names the setting
    gets:"write ledger record",10 commit:0=refused says:"Nothing of it is visible"
    says:"max.message.bytes of topic ledger" says:"fewer tasks" ledger=empty visible=0,0

an answer that comes after it was carried out and lost is no second commit
    gets:"write ledger record",after gets:"commit transaction",after,after commit:0=delivered visible=1,1
""")
def test_the_decision_and_behind_it(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
abort without a commit ends all receipts and attempts that left no message
    write:0 killed:0 abort:0=aborted tasks:0=aborted remains:0=aborted swept=1

abort in another process finds the decision and leaves everything alone
    gets:"commit transaction",lost* commit:0=pending forget
    abort/1b:0=left tasks:0=open times:"abort transaction"=0 times:"fence older drivers"=0

abort of a second writing of a delivered batch ends what is open and nothing else
    commit:0=delivered settle write:0 abort/1b:0=left earlier:0=committed tasks:0=aborted

a second writing of a decided batch in the same run is aborted and the first one finished
    gets:"commit transaction",lost* commit:0=pending commit/1b:0=already earlier:0=committed tasks:0=aborted

abort with a stale memory reads the ledger anew
    commit:0=delivered gets:"commit transaction",lost* commit/1b:1=pending abort:1=left

abort that cannot reach the ledger leaves everything to the time out
    write:0 gets:"read ledger",lost* abort:0=left notes=1 tasks:0=open

abort by a run that was replaced aborts its own and fences nobody
    commit:0=delivered commit/2:1=delivered write/2:2 write:1 killed:1 forget
    abort/1b:1=aborted times:"fence older drivers"=0 tasks:1=aborted remains:1=aborted
    tasks/2:2=open commit/2:2=delivered

abort by a run whose decision its successor finished does not say that all is aborted
    commit:0=delivered commit/2:1=delivered abort/1b:0=left tasks:0=committed

receipts are aborted wherever because nothing of them is still to come
    with brokers_verify=False
    write:0 abort:0=aborted tasks:0=aborted
""")
def test_abort(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
planning commits an open decision and fences nobody
    gets:"commit transaction",lost* commit:0=pending settle forget recover=recovered visible=1,1
    times:"fence older drivers"=0 times:"write ledger record"=0 commit/2:0=already ledger=done

planning reports a loss without writing it down
    gets:"commit transaction",lost* commit:0=pending settle timeout:0,1 settle
    recover=lost says:"1 of 2 are committed" ledger=intent

an unreachable broker at planning is said to have changed nothing
    gets:"read ledger",lost* recover=refused error=PKS-6007 says:"Nothing was changed"

finish closes the decision without a query
    gets:"commit transaction",lost* commit:0=pending finish=recovered ledger=done finish=nothing

a decision that cannot be finished is named whoever tries
    gets:"commit transaction",lost* commit:0=pending gets:"commit transaction",lost* finish=pending
    says:"batch 0 of query query-1 (2 rows to t) of sink 'sink' is decided, but 2 of 2" silent:"another"
    gets:"commit transaction",lost* commit/2:0=pending says:"is decided, but 2 of 2" recover=recovered

a decision that is finished and cannot be closed is said to be visible
    gets:"commit transaction",lost* commit:0=pending settle gets:"write ledger record",29 finish=pending error=PKS-6013
    says:"is committed and visible" visible=1,1 ledger=intent finish=recovered ledger=done

an open decision of this cluster is nobodys choice
    cluster:old gets:"commit transaction",lost* commit:0=pending accept=nothing finish=recovered

a batch behind a decision of another cluster is not committed
    cluster:old gets:"commit transaction",lost* commit:0=pending cluster:new forget
    commit/2:0=refused error=PKS-6006 says:"was copied" commit/2:1=refused error=PKS-6006 says:"was copied"
    times:"commit transaction"=0 ledger=intent

accepting a lost batch lets the next one go on
    gets:"commit transaction",lost* commit:0=pending timeout:0 settle finish=lost
    accept=resolved ledger=accepted commit/2:0=already commit/2b:1=delivered

replaying a lost batch runs it again and doubles only what was visible
    gets:"commit transaction",lost* commit:0=pending timeout:0 settle finish=lost
    replay=resolved commit/2:0=delivered visible=1,2

a lost export stops nothing but its own repetition and nobody chooses for it by the name of another
    gets:"commit transaction",lost* commit:monday=pending timeout:monday settle finish=nothing finish:monday=lost
    finish:monday=nothing recover=nothing commit/2:tuesday=delivered
    accept:tuesday=nothing commit/3:monday=lost accept:monday=resolved commit/4:monday=already

an export that is decided and not finished keeps no other one waiting and is left to its own driver
    gets:"commit transaction",lost* commit:monday=pending settle
    commit/2:tuesday=delivered recover=nothing commit/3:0=delivered tasks:monday=open
    recover:tuesday=nothing tasks:monday=open recover:monday=recovered tasks:monday=committed

there is nothing to choose where nothing is lost
    accept=nothing commit:0=delivered replay=nothing

a finish that is fenced in between fences again
    gets:"commit transaction",lost* commit:0=pending settle forget fenced:"write ledger record"
    finish=recovered times:"fence older drivers"=2 ledger=done

a sweep that is fenced in between fences again
    gets:"commit transaction",lost* commit:0=pending settle forget fenced:"write ledger record"
    sweep=recovered times:"fence older drivers"=2 ledger=done

an accept that is fenced in between fences again
    write:0 overtakes:0 commit:0=lost settle forget fenced:"write ledger record"
    accept=resolved times:"fence older drivers"=2 ledger=accepted

the sweep ends what a replaced run began after it was replaced
    commit:0=delivered commit/2:1=delivered write:1 commit/2:2=delivered swept=2 tasks:1=aborted

the operators sweep fences finishes and then ends every transaction of the sink
    gets:"commit transaction",lost* commit:0=pending killed/2:0 killed:0
    sweep=recovered visible=1,1 remains/2:0=aborted remains:0=aborted swept=2
""")
def test_planning_and_what_an_operator_can_ask_for(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
a write without a label neither claims nor reads the ledger and leaves nothing in it
    commit=delivered visible=1,1 times:"fence older drivers"=1 times:"claim ledger"=0 times:"read ledger"=0 labels=

a write without a label whose driver had the id before claims and reads
    taken commit=delivered visible=1,1 times:"claim ledger"=1 times:"read ledger"=1

a write without a label that is visible in part says so and is kept for an operator
    write overtakes gets:"commit transaction",48 commit=lost error=PKS-6022 says:"writing it again doubles"
    says:"resolve --accept --bootstrap-server HOST:PORT --ledger-topic ledger --sink-id sink"
    abort=left labels=sink/ accept=resolved labels=

a write without a label of which nothing was committed may be written again
    write overtakes overtakes_all commit=lost error=PKS-6022 says:"it may be written again"

a write without a label that is decided and not finished is finished by its abort in another process
    gets:"commit transaction",lost* commit=pending error=PKS-6011 says:"Spark's abort of this write finishes it"
    settle abort/1b=recovered visible=1,1 labels=

abort after a write without a label was delivered does not say that it was aborted
    commit=delivered settle abort/1b=recovered visible=1,1 tasks=committed

abort of a write without a label whose commit never decided aborts everything
    write gets:"write ledger record",29 commit=refused settle abort/1b=aborted visible=0,0 tasks=aborted labels=

abort of a write without a label whose decision is in doubt finds out that it arrived
    gets:"end ledger transaction",after,lost* commit=pending error=PKS-6012 says:"finishes the write or aborts it"
    settle abort/1b=recovered visible=1,1 labels=

abort of a write without a label whose decision is in doubt finds out that it did not arrive
    gets:"end ledger transaction",lost* commit=pending error=PKS-6012
    settle abort/1b=aborted visible=0,0 tasks=aborted labels=

abort after every record of a write without a label was compacted away claims no more than it did
    commit=delivered settle compacted abort/1b=left visible=1,1 tasks=committed

planning finishes the open decision of a write without a label of a driver that died and fences nobody
    gets:"commit transaction",lost* commit=pending settle forget recover=nothing visible=1,1
    times:"fence older drivers"=0 labels=sink/ finish=recovered labels=

planning of another write takes what it cannot finish for a note
    gets:"commit transaction",lost* commit=pending settle gets:"commit transaction",lost*
    recover=nothing says:"a write of another driver, is decided and not finished" tasks=open
    recover=nothing tasks=committed

abort of an export that is decided finishes it and its next run finds that
    gets:"commit transaction",lost* commit:monday=pending settle abort/1b:monday=recovered visible=1,1
    commit/2:monday=already

a labelled write is done once even after other labels
    commit:monday=delivered commit/2:tuesday=delivered commit/3:monday=already
    labels=sink/monday,sink/tuesday visible=2,2

another export under the label of an earlier one is refused
    commit:monday=delivered write/2:monday,1 commit/2:monday=refused error=PKS-6004 says:"its own batch.id"

a repeated batch with another count is refused and both counts are named
    commit:0=delivered write/2:0,1 commit/2:0=refused says:"delivered under this name were 2 rows to t"
    says:"this time there are 1 rows to t" says:"checkpoint" tasks/2:0=aborted visible=1,1
    write/2:0,1 commit/2b:0=refused

a decision that is finished first is compared as well
    gets:"commit transaction",lost* commit:0=pending
    write/2:0,1 commit/2:0=refused says:"2 rows to t" visible=1,1
""")
def test_writes_without_a_label_labels_and_batches_that_come_again(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
an intent without a marker behind a fence is finished
    gets:"commit transaction",lost* commit:0=pending unmark commit/2:0=already visible=1,1 ledger=done

an intent without a marker of which nothing can be committed was never decided
    gets:"end ledger transaction",lost* commit:0=pending settle timeout:0,0 timeout:0,1 settle init unmark
    commit/2:0=delivered visible=1,1

an intent without a marker that is visible in part is lost and says so
    gets:"commit transaction",-,lost* commit:0=pending unmark timeout:0,1 settle
    commit/2:0=lost says:"1 of 2 are committed"

an intent without a marker of which one transaction is committed is finished
    gets:"commit transaction",-,lost* commit:0=pending unmark commit/2:0=already visible=1,1 ledger=done

an intent without a marker is dropped if one transaction has timed out and none is committed
    gets:"commit transaction",lost* commit:0=pending unmark timeout:0 settle
    commit/2:0=delivered visible=1,1 says:"nothing of it is visible"

how a decision ended is believed without a marker or the intent below it would count as never decided
    gets:"commit transaction",lost* commit:0=pending unmark commit/2:0=already unmark commit/3:0=already visible=1,1

a decision behind the end that an outdated leader tells is found though planning cannot know of it
    gets:"commit transaction",lost* commit:0=pending settle outdated:5000 recover=nothing
    commit/2:0=already visible=1,1 ledger=done

the ledger is read to the claim without asking for its end
    commit:0=delivered times:"claim ledger"=1 times:"ledger stop"=0

a process claims the ledger once
    commit:0=delivered settle commit:1=delivered settle commit:2=delivered times:"claim ledger"=1

a claim without an answer is written again
    gets:"claim ledger",lost,19,7 commit:0=delivered times:"claim ledger"=4

a claim that nobody acknowledges in time leaves the batch undecided
    gets:"claim ledger",7* commit:0=refused says:"ledger ledger-0: Produce was answered with REQUEST_TIMED_OUT"
    ledger=empty

a decision for which the ledger has too few replicas names the ledger and not the rows
    gets:"write ledger record",19* commit:0=refused ledger=empty visible=0,0
    says:"ledger ledger-0: Produce was answered with NOT_ENOUGH_REPLICAS"

a claim that is not allowed is told with the ledger it is about
    gets:"claim ledger",29 commit:0=refused says:"ledger ledger-0" says:"TOPIC_AUTHORIZATION_FAILED"
""")
def test_what_the_ledger_tells(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
a process that is alone fences once
    commit:0=delivered commit:1=delivered commit:2=delivered commit:3=delivered commit:4=delivered
    times:"fence older drivers"=1

a process that comes back fences again once and then goes on
    commit:0=delivered settle commit/1b:1=delivered settle forget commit:2=delivered settle commit:3=delivered
    times:"fence older drivers"=1 visible=4,4

an id that expired while the stream was idle is taken again when the record is refused
    commit:0=delivered settle gets:"write ledger record",49 commit:1=delivered visible=2,2

an id that expired while the stream was idle is taken again when its partition is refused
    commit:0=delivered settle gets:"add ledger partition",49 commit:1=delivered visible=2,2

a process that is fenced before its done record finishes the batch
    fenced:"commit transaction",2 commit:0=delivered times:"fence older drivers"=2 visible=1,1 ledger=done

a decided batch is never said to be undecided when its done record is refused and fencing fails
    fenced:"commit transaction",2 gets:"claim ledger",-,7* commit:0=pending says:"committed and visible"
    abort:0=left visible=1,1

a coordinator that was frozen and refuses the epoch for seconds delays the batch
    gets:"end ledger transaction",48,90,48,90,48,48 commit:0=delivered visible=1,1

an elder run that wakes up stops and its successor goes on
    commit:0=delivered commit/2:1=delivered settle commit:2=refused says:"has taken over" settle commit/2:2=delivered

an elder run that comes in a new process does not end its successor
    commit:0=delivered gets:"write ledger record",29 commit/2:1=refused gets:"write ledger record",29
    commit/1b:1=refused settle commit/2:1=delivered

a process of a run that was taken over meanwhile says so
    commit:0=delivered gets:"write ledger record",refused commit/2:1=refused commit/1b:1=refused says:"has taken over"

what was remembered of the ledger stops no batch without being read again
    write:0 overtakes:0 commit:0=lost settle accept=resolved settle commit:1=delivered

a process with an old memory finds what another one has decided
    commit:0=delivered gets:"commit transaction",lost* commit/1b:1=pending settle commit:1=already visible=2,2

a driver that was fenced while it drafted looks again
    commit:0=delivered commit/1b:1=delivered commit:2=delivered batch=2

a list that is refused while a decision is carried out is a note
    commit:0=delivered gets:"list transactions",refused commit:1=delivered says:"could not be looked for"

a commit that is cut off after its draft is finished by nobody
    commit:0=delivered forget gets:"describe transactions",lost* commit:1=refused
    times:"end ledger transaction"=0 batch=0
""")
def test_processes_of_one_run_and_runs_of_one_sink(bench: Bench, history: History) -> None:
    check(bench, history)


@histories("""
by default nobody is asked whether the batch is visible
    commit:0=delivered times:"last stable offsets"=0

an answer that got lost is asked for again
    with visible_ms=500
    gets:"last stable offsets",lost,lost commit:0=delivered notes=0

whoever may not ask is told and the batch is delivered
    with visible_ms=500
    gets:"last stable offsets",refused commit:0=delivered says:"was not found out"

a write without a label is looked at too
    with visible_ms=500
    commit=delivered times:"last stable offsets"=1
""")
def test_whether_readers_see_it(bench: Bench, history: History) -> None:
    check(bench, history)
