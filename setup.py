"""Package metadata. Tools are configured in pyproject.toml, exact versions for development in constraints.txt."""

import os
import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

# Older ones have no such PySpark: pip would try one release after the other, gigabytes of them.
if sys.version_info < (3, 10):  # noqa: UP036 - this is what tells them
    sys.exit(f"pykafka-sink needs Python 3.10 or newer, and this is Python {sys.version.split()[0]}")

ROOT = Path(__file__).parent

# Read and not imported, because the dependencies of the package are not installed yet.
WRITTEN = dict(re.findall(r'^(\w+) = "(.+)"$', (ROOT / "kafka_sink" / "version.py").read_text(), re.MULTILINE))

# 4.0 is the first with the format, 3.4 the first for foreach_batch and write. It is an extra, because pip would install
# a second Spark beside that of a platform or an image, and because the producer and the command work without it.
SPARK = ["pyspark>=3.4"]
PKCS12 = ["cryptography>=42"]
# Packages that confluent-kafka's clients of a schema registry import. Its own extras (avro, protobuf, json) need a
# certifi that is newer than some mirrors have, and packages that these clients do not import. Fields of protobuf 6.30
# lack is_repeated, which tests use.
SCHEMAS = [
    "fastavro>=1.9",
    "protobuf>=6.31",
    "googleapis-common-protos",
    "jsonschema>=4.18",
    "httpx2>=2.0",
    "authlib>=1.8",
    "cachetools>=5.5",
    "attrs>=21.2",
    "certifi",
]
# Wraps the host's Kerberos library. On Linux its build needs a C compiler and libkrb5-dev.
KERBEROS = ["gssapi>=1.8"]
# Finds credentials for AWS_MSK_IAM and assumes roles. EMR and Glue have it already, with boto3.
AWS = ["botocore>=1.34"]
OTLP = ["opentelemetry-sdk>=1.27", "opentelemetry-exporter-otlp-proto-http>=1.27"]
# `pykafka-sink watch` draws with it if it is installed.
WATCH = ["rich>=13"]
# PySpark needs it for mapInArrow, in which the second door runs its tasks. PySpark 4.3 warns of pandas 3.
PANDAS = ["pandas>=2.2,<3"]
TEST = [
    *SPARK,
    *PANDAS,
    "pytest>=8",
    "pytest-timeout",
    "pytest-randomly",
    "hypothesis",
    # Independent implementations, compared with ours. The package itself does not need them.
    "confluent-kafka>=2.4",
    "kafka-python>=2.2",
    "aiokafka>=0.12",
    "kio>=0.6; python_version >= '3.11'",
    *SCHEMAS,
    # Other implementations of the codecs.
    "zstandard>=0.22",
    "cramjam>=2.8",
    # Read the metrics endpoint, what a collector receives, and lineage events.
    "prometheus-client>=0.20",
    "openlineage-python>=1.25",
    *OTLP,
    *WATCH,
    # Reads CloudEvents.
    "cloudevents>=2.2",
    # Checks the signatures of requests to AWS. 1.40.1 has no get_current_datetime, with which the tests set its clock.
    "botocore>=1.40.2",
    # Creates certificates, valid and invalid ones.
    *PKCS12,
]
# Current releases do not support Python 3.10.
SITE = ["mkdocs>=1.6,<2; python_version >= '3.11'", "mkdocs-material>=9.5; python_version >= '3.11'"]
# Runs the notebooks of examples/.
NOTEBOOK = ["nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6.29"]
BENCH = [*SPARK, *PANDAS, "confluent-kafka>=2.4", "kafka-python>=2.2", "aiokafka>=0.12"]

# The address of the repository, which is told by whoever builds a release: pages of an index have no files beside them.
PROJECT_URL = os.environ.get("PROJECT_URL", "").rstrip("/")
# A picture or a link whose target is a file of the repository.
TO_A_FILE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def long_description(readme: str, project_url: str, version: str) -> str:
    """README with absolute addresses. Without that of the project links keep their text, and pictures are gone."""

    place = "main" if ".dev" in version else f"v{version}"

    def absolute(found: re.Match[str]) -> str:
        is_picture, text, target = found[1], found[2], found[3]
        if not project_url:
            return "" if is_picture else text
        return f"{is_picture}[{text}]({project_url}/{'raw' if is_picture else 'blob'}/{place}/{target})"

    return TO_A_FILE.sub(absolute, readme)


setup(
    name="pykafka-sink",
    version=WRITTEN["VERSION"],
    description="Writes Spark DataFrames and streams to Apache Kafka exactly once, without a JAR or librdkafka",
    long_description=long_description((ROOT / "README.md").read_text(), PROJECT_URL, WRITTEN["VERSION"]),
    long_description_content_type="text/markdown",
    url=PROJECT_URL or None,
    license="Apache-2.0",
    packages=find_packages(include=["kafka_sink", "kafka_sink.*", "pyspark_pykafka_sink"]),
    package_data={"kafka_sink": ["py.typed"], "pyspark_pykafka_sink": ["py.typed"]},
    python_requires=">=3.10",
    # `make compat` runs the oldest of these together (docs/compatibility.md): what images with Spark 3.5 have, where a
    # newer pyarrow or numpy would not fit their pandas.
    install_requires=["pyarrow>=14.0.1", "numpy>=1.23.5", "lz4>=4.3", "crc32c>=2.4", "mmh3>=4"],
    extras_require={
        "spark": [*SPARK, *PANDAS],
        "pkcs12": PKCS12,
        "kerberos": KERBEROS,
        "aws": AWS,
        "otlp": OTLP,
        "watch": WATCH,
        "test": TEST,
        "bench": BENCH,
        "site": SITE,
        "notebook": NOTEBOOK,
        "dev": [*TEST, *BENCH, *NOTEBOOK, *SITE, "mypy", "ruff", "pytest-xdist", "coverage>=7.10"],
    },
    entry_points={
        "console_scripts": ["pykafka-sink = kafka_sink.__main__:main"],
        "pytest11": ["kafka_sink = kafka_sink.testing.pytest_plugin"],
    },
    license_files=["LICENSE"],
    keywords="apache kafka spark pyspark structured streaming sink exactly-once producer",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    zip_safe=True,
)
