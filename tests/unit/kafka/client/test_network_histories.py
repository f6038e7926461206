"""Histories (see `network_history.py`) of connections that fail, wait, move and end, of the choice of a broker, and of
metadata requests."""

from __future__ import annotations

from tests.unit.kafka.client.network_history import check, many_addresses, moved, nodes, with_metadata
from tests.unit.producer.engine.history import History, histories


@histories("""
a node never tried has no delay
    delay=none unavailable=no

a connected node has no delay
    ready delay=none

the delay after a disconnect is the first back-off and doubles when connecting fails
    ready lost delay=50 50ms delay=none down tries delay=100

the first and the longest back-off are those of the options
    with reconnect_backoff_ms=70 reconnect_backoff_max_ms=200
    ready lost delay=70 70ms down tries delay=140 tries:3 delay=200

equal first and longest back-off do not grow
    with reconnect_backoff_ms=100 reconnect_backoff_max_ms=100
    down tries:3 delay=100

jitter makes the back-off 20 percent shorter at most
    with jitter=0.0
    down tries delay=40 tries delay=80 tries delay=160

jitter makes the back-off 20 percent longer at most and for a hundred failures never longer than the longest
    with jitter=1.0
    down tries delay=60 tries delay=120 tries delay=240 tries:97 delay=1000

connecting before the back-off is over does nothing
    down tries up 49ms connect connects=1 delay=1 1ms ready connects=2

agreeing on versions resets the back-off and connecting alone does not
    down tries:3 up silent tries lost delay=400 speaks tries usable=yes lost delay=50

a failed connection is reported with host port and reason
    down connect losses=1 says:"connection to a:9092 (node 0) could not be established: connection refused; "
    says:"node 0 advertises this address (advertised.listeners) (next attempt"

nodes are told apart
    with brokers=2
    ready down/1 connect/1 usable=yes delay=none delay/1=50
""")
def test_back_off(history: History) -> None:
    check(nodes(**history.options), history)


@histories("""
connecting twice opens one connection
    wish wish wish connect connect connects=1 resolves=1

a disconnect during api versions backs off exponentially and reaches no caller
    silent tries lost delay=50 tries lost delay=100 tries lost delay=200 tries lost delay=400 tries lost delay=800
    tries lost delay=1000 answers=none

a disconnect during api versions tells the operator what to look at
    silent connect lost says:"a:9092 (node 0) was closed by the peer during ApiVersions"
    says:"is a TLS listener behind this port?" says:"next attempt in 50 ms"

of a row of failures an operator is told the first second fourth and eighth
    silent tries lost warnings=1 tries lost warnings=2 tries lost warnings=2 tries lost warnings=3
    tries lost tries lost tries lost warnings=3 tries lost warnings=4 tries lost warnings=4

a broker that accepts but never answers api versions is left after the request time out
    with request_timeout_ms=5000
    silent connect due=5000 4999ms connections=1 1ms connections=0 delay=50 says:"did not answer ApiVersions"

closing all during api versions reports nothing to callers
    silent connect close answers=none connections=0

any other error in the answer to api versions closes the connection
    refuses:ApiVersions,42 connect usable=no disconnects=1 answers=none
    says:"a:9092 (node 0) refused ApiVersions with error code 42"

a resolver that does not answer does not block the node for ever
    unnamed connect resolves=1 due=10000 10000ms says:"name was not resolved within 10000 ms"
    tries resolves=1 named usable=yes resolves=1

a name without an address is a failure too
    nowhere connect delay=50 says:"the name has no address"

connections that nobody accepts fail after the set up time out
    with brokers=2
    deaf deaf/1 connect connect/1 due=10000 9999ms losses=0 1ms losses=2 disconnects=2 delay=50
    says:"a:9092 (node 0): connection was not established within 10000 ms"

a connection begun later times out later
    with brokers=3
    deaf deaf/1 deaf/2 connect connect/1 5000ms connect/2 5000ms losses=2 4999ms losses=2 1ms losses=3 15000ms losses=3

the set up time out doubles up to its limit and starts over after success
    deaf connect due=10000 10000ms tries due=20000 20000ms tries due=30000 30000ms tries due=30000 30000ms
    up tries usable=yes lost deaf tries due=10000

the set up time out starts over as soon as a connection was established
    deaf connect 10000ms up silent tries lost deaf tries due=10000

a connection that is not there yet is not idle
    with connections_max_idle_ms=1000
    deaf connect 9999ms losses=0 1ms losses=1

closing while connecting leaves other nodes alone
    with brokers=2
    deaf deaf/1 connect connect/1 known:1 disconnects=1 up known:0,1 ready
""")
def test_setting_a_connection_up(history: History) -> None:
    check(nodes(**history.options), history)


@histories("""
a dead first address is followed by the next without asking the resolver again
    dead:old0 connect 50ms ready tried=old0,old1 resolves=1

the resolver is asked again when all addresses have failed
    dead:old0,old1,old2 tries:4 tried=old0,old1,old2,old0 resolves=2

after a lost connection the name is resolved again
    ready renamed lost 50ms ready tried=old0,new0 resolves=2

after a lost connection a dead new address is followed by the next new one
    ready renamed dead:new0 lost 50ms connect 100ms ready tried=old0,new0,new1 resolves=2

the address just lost is not the first to be tried
    ready lost 50ms ready tried=old0,old1

a failure names the address when the host has several
    dead:old0 connect says:"a:9092 (node 0, address old0) could not be established"
""")
def test_addresses_in_turn(history: History) -> None:
    check(many_addresses(), history)


@histories("""
a single address is tried again and again
    down tries:3 tried=a,a,a

a broker with a new endpoint is reconnected once it owes no answer
    with brokers=2
    ready send at:b usable=no in_flight=1 ok answers=ok connections=0 ready tried=a,b

another rack is no new endpoint
    ready at:a,rack-2 usable=yes

a broker that moves while its old name is resolved is connected at the new place
    unnamed connect at:b named tried=b resolves=2

the addresses of an old name that come late are not those of the new one
    unnamed connect 10000ms at:b named tries tried=b resolves=2

a resolver answer for a vanished broker is not taken for its successor
    with brokers=2
    unnamed connect known:1 at:b connect named tried=b resolves=2

a vanished broker is closed when it is idle and forgotten
    with brokers=2
    ready known:1 connections=0 connect connects=1

a vanished broker still delivers what it owes
    with brokers=2
    ready send known:1 in_flight=1 ok answers=ok connections=0

a broker removed and added again has no back-off
    with brokers=2
    down tries delay=50 known:1 known:0 delay=none
""")
def test_brokers_that_move_or_vanish(history: History) -> None:
    check(nodes(**history.options), history)


@histories("""
a node being connected is waited for before another is tried
    with brokers=3 jitter=0.0
    unnamed deaf/1 connect/1 offered=1 named tried=b offered=1

a connected node is preferred and the one with fewest in flight of all
    with brokers=3 jitter=0.0
    ready/1 offered=1 ready/2 send/1 offered=2

no node is offered while the only one backs off
    ready reachable=yes lost offered=none reachable=no retry=50

while one is full or asks for a pause another is tried as soon as its back-off is over
    with brokers=2 max_in_flight_requests_per_connection=1
    ready send down/1 connect/1 offered=none retry=50

a full node is not offered but counts as reachable
    with max_in_flight_requests_per_connection=1
    ready offered=0 send offered=none reachable=yes

a throttled node is not offered
    ready send throttled:100 offered=none reachable=yes 100ms offered=0

disconnected nodes are offered in turn the longest untried first
    with brokers=3 jitter=0.0
    down down/1 down/2 asks 1001ms asks 1001ms asks 1001ms asks 1001ms asks 1001ms asks 1001ms asks tried=a,b,c,a,b,c,a

a node whose name is being resolved counts as reachable
    unnamed connect reachable=yes

jitter spreads producers over equal nodes
    with brokers=3 jitter=0.0
    offered=0 dice:0.34 offered=1 dice:0.67 offered=2

the bootstrap servers are asked while no broker is known
    with knows_brokers=False bootstrap_servers=(("x",1),("a",9092)) jitter=0.0
    offered=-2 connect/-2 says:"x:1 (bootstrap server) could not be established" offered=-3

an open bootstrap connection is used before a new one is made but not before an open broker
    with knows_brokers=False brokers=2 bootstrap_servers=(("b",9092),)
    ready/-2 known:0 offered=-2 ready send offered=0

an open bootstrap connection becomes that of the broker with the same address
    with knows_brokers=False brokers=2
    ready/-2 known:0,1 usable=yes usable/1=no connections=1 offered=0

a broker that has a connection keeps it with what it owes on it
    with knows_brokers=False
    ready/-2 known:0 send ready/-2 known:0 in_flight=1 connections=2 ok answers=ok

a bootstrap connection that is not open yet stays what it is
    with knows_brokers=False
    silent connect/-2 known:0 usable=no connections=1 speaks ready usable=yes connections=2

availability counts from the first wish until the node can take a request
    down tries:2 500ms unavailable=550 up ready unavailable=no lost unavailable=0

a full node is unavailable until an answer makes room
    with max_in_flight_requests_per_connection=1
    ready send 70ms unavailable=70 ok unavailable=no
""")
def test_whom_to_ask(history: History) -> None:
    check(nodes(**history.options), history)


@histories("""
requests are pipelined up to the limit
    with max_in_flight_requests_per_connection=2
    ready send usable=yes send usable=no ok usable=yes

an unanswered request closes the connection and fails all in flight in order
    ready send:30000 send:5000 send:30000 due=5000 4999ms answers=none 1ms answers=lost,lost,lost connections=0 losses=1
    says:"a:9092 (node 0) did not answer Produce v" says:"within 5000 ms"

after an answer the earliest deadline of the rest counts
    ready send:30000 send:5000 send:30000 ok due=5000

nodes time out separately
    with brokers=2
    ready ready/1 send:50 send/1:200 send/1:100 49ms answers=none
    26ms answers=lost answers/1=none 50ms answers/1=lost,lost

an answer after the time-out is ignored
    ready send:100 100ms answers=lost ok answers=lost

an idle connection is closed without back-off and without counting as a loss
    with connections_max_idle_ms=60000
    ready 30000ms send ok due=60000 59999ms connections=1 1ms connections=0 delay=none losses=0 unavailable=no ready

idle time counts from the last answer
    with connections_max_idle_ms=60000
    ready send 1000ms ok due=60000

a connection with a request in flight is not idle
    with connections_max_idle_ms=1000
    ready send 10000ms connections=1

idle time minus one means never
    with connections_max_idle_ms=-1
    ready 1000000000ms usable=yes

the time spent throttled does not count against other requests in flight
    ready send:1000 send:1000 throttled:1000 1999ms in_flight=1 1ms in_flight=0

a throttle never ends earlier because of a later answer
    ready send send throttled:500 throttled:10 delay=500

a disconnect fails all in flight in order
    ready send send send lost answers=lost,lost,lost usable=no in_flight=0
    says:"a:9092 (node 0) was lost with 3 requests in flight: connection reset by peer"

close all closes every connection and answers every request
    with brokers=2
    ready ready/1 send send/1 close close answers=lost answers/1=lost says:"because the producer was closed"
    connections=0 connect connects=2

other nodes do not notice a lost connection
    with brokers=2
    ready ready/1 send lost/1 in_flight=1 ok answers=ok
""")
def test_requests_and_what_ends_a_connection(history: History) -> None:
    check(nodes(**history.options), history)


@histories("""
without any topic the brokers are asked for alone
    0ms asked=- brokers=0

a refresh is due when the metadata has reached its age
    want:t next=300000 299999ms asked=t 1ms asked=t,t

a requested update waits for the back-off only
    want:t update next=100 asked=t 100ms asked=t,t next=300000

answers without news make the waits longer and news make them short again
    want:t update next=100 100ms update next=100 100ms update next=200 200ms update next=400 400ms update next=800 800ms
    update next=1000 1000ms moves update 1000ms update next=100

an answer after the age is no sign of being stuck
    want:t 300000ms 300000ms 300000ms update next=100

a failed question is repeated after a growing back-off
    want:t empty update 100ms next=100 100ms next=200 200ms next=400 400ms next=800 800ms
    failed=yes says:"names no broker" full 1000ms failed=no next=300000

an update requested during the back-off of a failure still waits
    want:t empty update 100ms update next=100

a lost connection calls for new metadata
    want:t ready 1000ms lost 50ms asked=t,t

a question that times out is asked again
    with request_timeout_ms=5000
    want:t silent update 100ms 5000ms failed=yes says:"did not answer Metadata" speaks 100ms asked=t,t,t failed=no
""")
def test_when_metadata_is_asked_for(history: History) -> None:
    check(with_metadata(**history.options), history)


@histories("""
a new topic is asked for at once and alone
    want:t want:u asked=t,u led=t:0,u:0

a known topic wanted again is not asked for
    want:t want:t asked=t next=300000

a partial refresh neither counts as the full one nor delays it
    want:t 299000ms want:u asked=t,u next=1000

a requested update turns the question for a new topic into one for all
    want:t update want:u asked=t,t+u next=300000

a topic wanted while a question is under way is asked for next
    want:t silent want:u want:v speaks 100ms asked=t,u,v

a topic unused for its idle time is forgotten and a used one is not
    with metadata_max_idle_ms=300000
    want:t want:u 150000ms want:u 150000ms topics=u asked=t,u,t+u 300000ms asked=t,u,t+u,u topics=none

a topic not answered yet is not forgotten however old the wish is
    want:t down lost want:u up 600000ms topics=u
""")
def test_for_which_topics_metadata_is_asked(history: History) -> None:
    check(with_metadata(**history.options), history)


@histories("""
the bootstrap servers are asked when every known broker has just failed
    cut says:"back to the bootstrap servers: no known broker can be reached" led=t:5

without the recovery strategy the known brokers are kept
    with metadata_recovery_strategy=none
    cut brokers=0,1

back at the bootstrap servers topics are remembered without leaders
    down/5 cut brokers=none topics=t led=none up/5 1000ms 1000ms 1000ms led=t:5

a broker can send its clients back to the bootstrap servers
    refuses:Metadata,129 update 100ms says:"a broker asked for it" 100ms asked=t,t,t led=t:5

a code that sends clients back is only a failure without the strategy
    with metadata_recovery_strategy=none
    refuses:Metadata,129 update 100ms brokers=0,1 says:"(129)"
""")
def test_back_to_the_bootstrap_servers(history: History) -> None:
    check(moved(**history.options), history)
