"""Downloads the Maven artifacts of tests and demos, and creates the class archives, so that no test waits for them.

Otherwise parallel tests would all wait for one download, each within its own time-out. A failed download is not an
error here: the tests that need the file skip or fail with the reason.
"""

from __future__ import annotations

import sys

from tools.kafka_archive import make_archive
from tools.kafka_jars import VERSIONS, KafkaUnavailable, msk_iam_jars
from tools.spark_jars import java_sink_jars
from tools.spark_jvm import make_spark_archive


def main() -> None:
    try:
        for version in VERSIONS:
            make_archive(version)
        java_sink_jars()
        msk_iam_jars()
        make_spark_archive()
    except KafkaUnavailable as missing:
        sys.stdout.write(f"{missing}\n")


if __name__ == "__main__":
    main()
