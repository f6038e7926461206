"""Commands of Apache Kafka's own tools for an advice: complete, so that they can be pasted into a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from kafka_sink.commit.admin.topics import TopicState
from kafka_sink.commit.command_texts import BrokerArguments, broker_arguments
from kafka_sink.frozen import frozen
from kafka_sink.options import ProducerOptions

CONFIGS, REASSIGN, ACLS = "kafka-configs.sh", "kafka-reassign-partitions.sh", "kafka-acls.sh"
# More of them would not be read, and hardly be pasted.
_PARTITIONS_MAX = 24
_BARE_ALTER = re.compile(r"kafka-configs (--alter [^)]*)")


@frozen
class KafkaTools:
    """`user`: of the job's login; empty if only the brokers know it."""

    brokers: BrokerArguments
    user: str = ""

    @property
    def hint(self) -> str:
        """The end of an advice with a command."""
        return f". {self.brokers.hint}" if self.brokers.hint else ""

    def alter_topic(self, topic: str, name: str, value: object) -> str:
        return self._alter(("--entity-type", "topics", "--entity-name", topic, "--add-config", f"{name}={value}"))

    def delete_quota(self, entity: Mapping[str, str | None], name: str) -> str:
        """`entity`: name by type; None is the default of the type."""
        words: list[str] = []
        for kind, entity_name in entity.items():
            words += ["--entity-type", f"{kind}s" if kind != "client-id" else "clients"]
            words += ["--entity-default"] if entity_name is None else ["--entity-name", entity_name]
        return self._alter((*words, "--delete-config", name))

    def grant(self, operations: Sequence[str], *resource: str) -> str:
        words = ["--add", "--allow-principal", f"User:{self.user or 'NAME'}"]
        for operation in operations:
            words += ["--operation", operation]
        who = "" if self.user else "; NAME stands for the principal of this login"
        return f"`{self._command(ACLS, (*words, *resource))}`{who}{self.hint}"

    def add_replicas(self, topic: str, state: TopicState, brokers: Sequence[int], wanted: int) -> str:
        """The leaders stay; each partition gets the next brokers."""
        if len(state.replicas) > _PARTITIONS_MAX:
            return f"give {topic} {wanted} replicas with {REASSIGN} --execute"
        rows = [
            {"topic": topic, "partition": index, "replicas": _more_replicas(held, brokers, index, wanted)}
            for index, held in enumerate(state.replicas)
        ]
        file = f"{topic}-replicas.json"
        plan = json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
        execute = self._command(REASSIGN, ("--reassignment-json-file", file, "--execute"))
        return f"`echo {shlex.quote(plan)} > {shlex.quote(file)} && {execute}`{self.hint}"

    def complete(self, advice: str) -> str:
        """An advice of the commit, whose command lacks the brokers."""
        told = _BARE_ALTER.sub(lambda found: f"`{self._command(CONFIGS, found[1].split())}`", advice)
        return f"{told}{self.hint}" if told != advice else told

    def _alter(self, words: Sequence[str]) -> str:
        return f"`{self._command(CONFIGS, ('--alter', *words))}`{self.hint}"

    def _command(self, tool: str, words: Sequence[str]) -> str:
        reached = [word.replace("--properties", "--command-config") for word in self.brokers.words]
        return shlex.join([tool, *reached, *words])


def tools_for(options: ProducerOptions) -> KafkaTools:
    return KafkaTools(broker_arguments(options), options.sasl_username or "" if options.has_sasl else "")


def restart_with(*settings: str) -> str:
    """For settings that brokers read only when they start."""
    return f"set {' and '.join(settings)} in server.properties of every broker, and restart them one by one"


def _more_replicas(held: Sequence[int], brokers: Sequence[int], index: int, wanted: int) -> list[int]:
    others = [broker for broker in brokers if broker not in held]
    turn = index % len(others) if others else 0
    return [*held, *others[turn:], *others[:turn]][:wanted]
