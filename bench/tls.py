"""What TLS costs: `python -m bench.tls [--quick] [--rounds N]`, for our producer and for Java's, in one run.

Each client writes the same records to the same broker through a PLAINTEXT and an SSL listener (TLS 1.3, one-way),
alternately, each time in a new process. Only ratios are kept: SSL to PLAINTEXT for each client, and ours to Java's
on each listener. The broker's encryption costs the same CPU in both cases and shares the machine with the clients.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.contest import BROKER_JVM, BROKER_PROPERTIES, Arena
from bench.plan import CONTESTANTS, FULL, JAVA, QUICK, Case, Plan
from bench.report import PAGES, PARTIAL, conditions, machine, publish
from tests.support.certificates import Authority
from tools.kafka_cluster import KafkaCluster
from tools.kafka_security import SSL, BrokerTls

PLAINTEXT = "PLAINTEXT"
OURS = ("send_arrow", "send")
CLIENTS = tuple(each for each in CONTESTANTS if each.name in (*OURS, JAVA))

# Records per second of each round, by case, client and listener.
Rates = dict[tuple[str, str, str], list[float]]


def measure(arena: Arena, plan: Plan, listeners: Mapping[str, Mapping[str, str]]) -> Rates:
    rates: Rates = {}
    for number in range(plan.repetitions):
        for case in plan.cases:
            for client in CLIENTS:
                for listener, options in listeners.items():
                    found = arena.run(client, case, plan, security=options)
                    rates.setdefault((case.title, client.name, listener), []).append(found.rate)
                    told = f"{number + 1}/{plan.repetitions} {case.title:14} {client.title:28} {listener:9}"
                    print(f"{told} {found.rate:12,.0f} records/s", flush=True)
    return rates


def markdown(rates: Rates, cases: Sequence[Case], about: Mapping[str, str]) -> str:
    """A ratio is the median over all rounds, with the smallest and the largest in brackets."""
    lines = ["# What TLS costs", "", "Written by `python -m bench.tls`. Ratios of rates within one run.", ""]
    lines += [conditions(about), ""]
    lines += [
        "| records | client | SSL to PLAINTEXT | to Java, PLAINTEXT | to Java, SSL |",
        "| --- | --- | --: | --: | --: |",
    ]
    for case in cases:
        for client in CLIENTS:
            own = {each: rates[case.title, client.name, each] for each in (PLAINTEXT, SSL)}
            java = {each: rates[case.title, JAVA, each] for each in (PLAINTEXT, SSL)}
            cells = [_ratio(own[SSL], own[PLAINTEXT])]
            cells += ["" if client.name == JAVA else _ratio(own[each], java[each]) for each in (PLAINTEXT, SSL)]
            lines.append(f"| {case.title} | {client.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ratio(some: Sequence[float], others: Sequence[float]) -> str:
    found = [one / other for one, other in zip(some, others, strict=True)]
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description="Measure what TLS costs.")
    parser.add_argument("--quick", action="store_true", help="short runs, to see that it works; writes to build/bench")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    plan = replace(plan, repetitions=options.rounds or plan.repetitions)
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as name:
        folder = Path(name)
        authority = Authority(folder)
        tls = BrokerTls(authority.issue("broker", "127.0.0.1", "localhost").both, authority.path)
        with KafkaCluster(properties=BROKER_PROPERTIES, tls=tls, jvm_options=BROKER_JVM) as kafka:
            secured = {
                "bootstrap.servers": kafka.bootstrap_servers_of(SSL),
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.path),
            }
            rates = measure(Arena(kafka, folder), plan, {PLAINTEXT: {}, SSL: secured})
    runs = [
        {"case": case, "client": client, "listener": where, "rates": found}
        for (case, client, where), found in rates.items()
    ]
    about = {"rounds": str(plan.repetitions), **machine()}
    text = markdown(rates, plan.cases, about)
    publish("tls", text, {"about": about, "runs": runs}, PARTIAL if options.quick else PAGES)


if __name__ == "__main__":
    main()
