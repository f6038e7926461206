"""Apache Kafka's jars by version, fetched once by Maven into a cache outside the tree.

The cache is `$PYKAFKA_SINK_CACHE`, else `~/.cache/pykafka-sink`, with a folder `kafka-<version>` for each version and
one of spark_jars.py. Maven copies into a temporary folder, which is renamed when it is complete, so that a partial
download is never used. A lock file prevents two test runs from downloading the same files.

If Java or Maven is missing, or Maven cannot download, `KafkaUnavailable` gives the reason: tests skip with that text.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# 4.3.1: the newest release whose kafka-tools is published; transaction version 2 (KIP-890).
# 3.9.1: the last release of the line before it; transaction version 1.
VERSIONS = ("4.3.1", "3.9.1")
# Releases whose kafka-tools is not published. A broker does not need it: the tool that formats is in kafka_2.13.
WITHOUT_TOOLS = frozenset({"4.4.0"})

_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_DOWNLOAD_TIMEOUT_S = 600


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be run on this machine; the text says what is missing."""


def cache_folder() -> Path:
    chosen = os.environ.get("PYKAFKA_SINK_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pykafka-sink"


def java_command() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise KafkaUnavailable("Apache Kafka needs Java 17, and there is no java command here")
    return found


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Maven artifact; with `alone` it is fetched without its dependencies."""

    group: str
    name: str
    version: str
    alone: bool = False


def jars(version: str) -> list[Path]:
    """The jars of one version in a fixed order. The first call downloads them."""
    wanted = [
        Artifact("org.apache.kafka", "kafka_2.13", version),
        *([] if version in WITHOUT_TOOLS else [Artifact("org.apache.kafka", "kafka-tools", version)]),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    return fetch_jars(f"kafka-{version}", wanted)


def tools_version(version: str) -> str:
    """The version whose command line tools are used with a broker of `version`."""
    return VERSIONS[0] if version in WITHOUT_TOOLS else version


def class_path(version: str) -> str:
    return os.pathsep.join(str(jar) for jar in jars(version))


def fetch_jars(name: str, wanted: Sequence[Artifact]) -> list[Path]:
    """The jars in the cache's folder `name`, in a fixed order. They are downloaded if the folder does not exist."""
    folder = cache_folder() / name
    if not (folder / "jars").is_dir():
        # Maven's own repository does not support two Mavens at once.
        with cache_lock(name), cache_lock("maven"):
            if not (folder / "jars").is_dir():
                _download(folder, wanted)
    # Sorted because a class archive (kafka_node.py) is valid only for one exact class path.
    return sorted((folder / "jars").glob("*.jar"))


def msk_iam_jars() -> list[Path]:
    """Amazon's login for Java clients, and its dependencies."""
    return fetch_jars("msk-iam-2.3.5", [Artifact("software.amazon.msk", "aws-msk-iam-auth", "2.3.5")])


@contextlib.contextmanager
def cache_lock(name: str) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_maven(name: str, *arguments: str) -> None:
    """`name` is that of the folder in the cache, for errors."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"{name} is not in the cache, and there is no mvn command to fetch it")
    command = [maven, "-q", "-B", *arguments]
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"mvn did not fetch {name} in {_DOWNLOAD_TIMEOUT_S} s") from None
    if run.returncode != 0:
        raise KafkaUnavailable(f"mvn could not fetch {name}: {(run.stdout + run.stderr)[-2000:]}")


def _download(folder: Path, wanted: Sequence[Artifact]) -> None:
    name = folder.name
    for left_behind in folder.parent.glob(f"fetch-{name}-*"):  # left by a killed process, since we hold the lock
        shutil.rmtree(left_behind, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"fetch-{name}-", dir=folder.parent))
    try:
        (work / "pom.xml").write_text(_pom(wanted))
        run_maven(name, "-f", str(work / "pom.xml"), _COPY_GOAL, f"-DoutputDirectory={work / 'jars'}")
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pom(wanted: Sequence[Artifact]) -> str:
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    rows = "\n".join(
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version>{nothing_else if artifact.alone else ''}</dependency>"
        for artifact in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>pykafka-sink</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{rows}\n</dependencies>\n</project>\n"
    )


if __name__ == "__main__":
    for wanted_version in VERSIONS:
        print(f"Apache Kafka {wanted_version}: {len(jars(wanted_version))} jars")
