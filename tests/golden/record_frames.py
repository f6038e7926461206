"""Records what the serializers of Apicurio and AWS Glue put around a value: `python -m tests.golden.record_frames`.

It needs Java and Maven. It writes registry_frames.txt, which test_framing.py uses for its comparison.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.kafka_jars import Artifact, fetch_jars, java_command

HERE = Path(__file__).parent
PATH = HERE / "registry_frames.txt"
SERDES = "io.apicurio"
APICURIO = (
    Artifact(SERDES, "apicurio-registry-serdes-avro-serde", "2.6.13.Final"),
    Artifact(SERDES, "apicurio-registry-serdes-protobuf-serde", "2.6.13.Final"),
)
GLUE = (Artifact("software.amazon.glue", "schema-registry-serde", "1.1.24"),)


def recorded(source: str, name: str, wanted: Sequence[Artifact]) -> list[str]:
    class_path = os.pathsep.join(str(jar) for jar in fetch_jars(name, wanted))
    run = subprocess.run(
        [java_command(), "-cp", class_path, str(HERE / source)], capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def main() -> None:
    lines = [f"apicurio {line}" for line in recorded("RecordApicurioFrames.java", "apicurio-serdes-2.6.13", APICURIO)]
    lines += [f"glue {line}" for line in recorded("RecordGlueFrames.java", "glue-serde-1.1.24", GLUE)]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
