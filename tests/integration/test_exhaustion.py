"""Errors at a limit of memory, threads or descriptors name the limit; a task leaves no transaction open."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedBroker
from tests.support.certificates import Authority


@pytest.mark.parametrize(("which", "words"), [("thread", "cannot start a thread"), ("memory", "has no memory left")])
def test_a_task_at_the_limit_of_its_address_space_names_it(which: str, words: str) -> None:
    with EmbeddedBroker(topics={"rows": 1}) as kafka:
        command = [sys.executable, "-m", "tests.integration.exhausted_task", kafka.bootstrap_servers, "rows", which]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        assert run.stdout.startswith("PKS-5007 ")
        assert words in run.stdout
        assert "MiB (spark.executor.pyspark.memory, or ulimit -v)" in run.stdout
        assert "Spark partition 0, TID 7" in run.stdout
        assert kafka.records("rows") == []


def test_a_process_without_descriptors_hears_of_that_and_not_of_its_brokers() -> None:
    with EmbeddedBroker(topics={"rows": 1}) as kafka:
        command = [sys.executable, "-m", "tests.integration.exhausted_descriptors", kafka.bootstrap_servers]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        told = run.stdout.splitlines()
        made = "a client could not be made: this process cannot open more files (Too many open files)"
        assert told[:2] == [f"PKS-5008 {made}", f"PKS-5008 {made}"]
        assert "could not be established: 127.0.0.1:" in told[2]
        assert told[2].endswith("this process cannot open more files (Too many open files)")


def test_a_moment_without_descriptors_while_a_password_is_read_again_ends_no_producer(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("password=secret")
    properties = {"connections.max.reauth.ms": "1500"}
    with EmbeddedBroker(users={"alice": "secret"}, topics={"rows": 1}, properties=properties) as kafka:
        command = [sys.executable, "-m", "tests.integration.exhausted_descriptors", kafka.bootstrap_servers]
        run = subprocess.run(
            [*command, "session", str(tmp_path / "secrets")], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == "1\n"
        assert "this process cannot open more files" in run.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the folder")
def test_a_moment_without_descriptors_while_a_broker_is_verified_refuses_no_broker(tmp_path: Path) -> None:
    """Authorities in a folder are opened during each handshake."""
    authority = Authority(tmp_path)
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker", "localhost", "127.0.0.1").both)
    with EmbeddedBroker(topics={"rows": 1}, tls=context) as kafka:
        command = [sys.executable, "-m", "tests.integration.exhausted_descriptors", kafka.bootstrap_servers]
        run = subprocess.run([*command, "folder", str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        assert run.stdout == "0\n"
        assert "this process cannot open more files" in run.stderr
