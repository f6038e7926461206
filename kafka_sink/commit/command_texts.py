"""The commands that texts tell an operator to run: complete, and quoted for a shell, so that they can be pasted.

They are made here and nowhere else. A test makes each text that names one, in the state in which it is raised, pastes
the command into a shell, and looks at what has become of the batch.

No secret is repeated. Where a login is needed, the command names a properties file, and `hint` says what must be in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.frozen import frozen
from kafka_sink.options.sink_options import DEFAULT_LEDGER

if TYPE_CHECKING:
    from kafka_sink.options.producer_options import ProducerOptions

PROGRAM, KAFKA_TOOL = "pykafka-sink", "kafka-transactions.sh"
PROPERTIES = "client.properties"
_LOGIN_HINT = (
    f"{PROPERTIES} stands for a file with the job's options for encryption and login (security.protocol, ssl.* and "
    "sasl.*)"
)
# What a job's file may have besides, that tool takes for other options, or for values.
_TOOL_HINT = (
    f"{PROPERTIES} stands for a file with the login as Kafka's tools read it: without the prefix kafka. and without "
    "${...}"
)


@frozen
class BrokerArguments:
    """How a command reaches the brokers, and Kafka's own tools do (`tool_words`). `hint`: what a person has to fill in;
    empty if nothing."""

    words: tuple[str, ...] = ("--bootstrap-server", "HOST:PORT")
    hint: str = "HOST:PORT stands for the brokers of the job"
    tool_words: tuple[str, ...] = ("--bootstrap-server", "HOST:PORT")


UNKNOWN_BROKERS = BrokerArguments()


def broker_arguments(options: ProducerOptions) -> BrokerArguments:
    """For a process with these options."""
    named = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in options.bootstrap_servers
    )
    words = ("--bootstrap-server", named)
    if not (options.has_tls or options.has_sasl):
        return BrokerArguments(words, "", words)
    of_tool = (*words, "--command-config", PROPERTIES)
    return BrokerArguments((*words, "--properties", PROPERTIES), _LOGIN_HINT, of_tool)


@frozen
class CommandTexts:
    """The commands about one ledger. A sink id is that of a record, and exact: of one query, not of all under a
    name."""

    brokers: BrokerArguments = UNKNOWN_BROKERS
    ledger_topic: str = DEFAULT_LEDGER

    @property
    def hint(self) -> str:
        """The end of a text that names commands."""
        return f". {self.brokers.hint}" if self.brokers.hint else ""

    def ledger(self, sink_id: str | None = None) -> str:
        return self._make("ledger", sink_id)

    def recover(self, sink_id: str) -> str:
        return self._make("recover", sink_id)

    def recover_all(self) -> str:
        """Of this ledger, and the default one."""
        return self._make("recover --all", None)

    def replay(self, record: LedgerRecord) -> str:
        return self._make("resolve --replay", record.sink_id, _batch_words(record))

    def accept(self, record: LedgerRecord) -> str:
        return self._make("resolve --accept", record.sink_id, _batch_words(record))

    def set_aside(self, sink_id: str, ledger_key: str | None = None) -> str:
        is_typed = ledger_key is not None and ledger_key.isprintable()
        return self._make("resolve --set-aside", sink_id, _argument("--key", str(ledger_key)) if is_typed else ())

    def transactions(self, sink_id: str) -> str:
        return self._make("transactions", sink_id)

    def abort_transactions(self, sink_id: str) -> str:
        return self._make("transactions --abort", sink_id)

    def end_transaction(self, transactional_id: str) -> str:
        """Of another application."""
        return self._make(
            "transactions --abort", None, _argument("--transactional-id", transactional_id), has_ledger=False
        )

    def abort_hanging(self, topic: str, partition: int, start_offset: int) -> str:
        """Kafka's tool, for a transaction that its coordinator does not know any more."""
        more = ("--topic", topic, "--partition", str(partition), "--start-offset", str(start_offset))
        return shlex.join([KAFKA_TOOL, *self.brokers.tool_words, "abort", *more])

    @property
    def tool_hint(self) -> str:
        """The end of a text that names a command of Kafka's tools."""
        return f". {_TOOL_HINT}" if PROPERTIES in self.brokers.tool_words else ""

    def retire(self, sink_ids: Iterable[str], silent_ms: int) -> str:
        words = [word for sink_id in sink_ids for word in _argument("--retired", sink_id)]
        return self._make("status", None, ("--silent-after", str(silent_ms // 1000), *words))

    def create_topic(self, topic: str) -> str:
        return self._make("topic --create", None, ("--topic", topic), has_ledger=False)

    def begin_replay(self, source: str, target: str, filters: Mapping[str, Sequence[str]], name: str) -> str:
        """Of dead letters."""
        chosen = [word for key, wanted in filters.items() for one in wanted for word in ("--filter", f"{key}={one}")]
        places = (*_argument("--from", source), *_argument("--to", target))
        return self._make("replay", None, (*places, *chosen, *_argument("--name", name)))

    def recover_elsewhere(self, sink_id: str) -> str:
        """In another cluster, whose addresses nobody knows here."""
        return CommandTexts(UNKNOWN_BROKERS, self.ledger_topic).recover(sink_id)

    def _make(self, command: str, sink_id: str | None, more: tuple[str, ...] = (), *, has_ledger: bool = True) -> str:
        words = [PROGRAM, *command.split(), *self.brokers.words]
        words += (
            _argument("--ledger-topic", self.ledger_topic) if has_ledger and self.ledger_topic != DEFAULT_LEDGER else ()
        )
        words += _argument("--sink-id", sink_id) if sink_id is not None else ()
        return shlex.join([*words, *more])


def _argument(name: str, value: str) -> tuple[str, ...]:
    """A value that begins with a dash would be taken for another option."""
    return (f"{name}={value}",) if value.startswith("-") else (name, value)


def _batch_words(record: LedgerRecord) -> tuple[str, ...]:
    """Without it the command is about the only lost batch of the sink."""
    batch = str(record.key.batch_id)
    return _argument("--batch", batch) if batch and batch.isprintable() else ()
