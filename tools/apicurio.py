"""A third-party schema registry for tests: Apicurio, in memory, on a free port of 127.0.0.1.

Maven downloads it into the same cache as Kafka's jars (140 MB), and Java runs it. `url` is the address of its interface
for Confluent's clients.
"""

from __future__ import annotations

import http.client
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from tools.kafka_jars import KafkaUnavailable, cache_folder, cache_lock, java_command, run_maven
from tools.kafka_node import free_port

VERSION = "2.6.13.Final"
_NAME = f"apicurio-registry-app-{VERSION}"
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_START_TIMEOUT_S = 180


class Apicurio:
    def __init__(self) -> None:
        self._folder = _fetch()
        self._port = free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it ends)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Apicurio:
        command = [
            java_command(), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dquarkus.http.port={self._port}",
            "-Dquarkus.http.host=127.0.0.1", "-Dregistry.rest.artifact.deletion.enabled=true",
            "-jar", str(self._folder / f"{_NAME}-runner.jar"),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        given_up_s = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > given_up_s:
                self._log.seek(0)
                told = self._log.read()[-2000:].decode(errors="replace")
                self.__exit__()
                raise KafkaUnavailable(f"Apicurio did not start: {told}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._log.close()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False


def _fetch() -> Path:
    folder = cache_folder() / _NAME
    with cache_lock(_NAME):
        if not folder.is_dir():
            _download(folder)
    return folder


def _download(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"fetch-{_NAME}-", dir=folder.parent) as work:
        wanted = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        with cache_lock("maven"):
            run_maven(_NAME, _COPY_GOAL, f"-Dartifact={wanted}", f"-DoutputDirectory={work}")
        app = Path(work) / "app"
        app.mkdir()
        # tarfile's filters came with Python 3.11.4; Debian 12 has 3.11.2.
        subprocess.run(["tar", "-xzf", str(Path(work) / f"{_NAME}-all.tar.gz"), "-C", str(app)], check=True)
        app.rename(folder)
