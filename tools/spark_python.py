"""The interpreter of the Python processes that Spark starts in tests.

Spark puts the zips of its `python/lib` first on the path of these processes, and Python keeps no compiled modules of a
zip: each of them compiles PySpark again, in a second of CPU. A task that fails ends its process, so a test of a mistake
pays for several. The same PySpark lies in the folder of this interpreter, compiled.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import sysconfig

from tools.kafka_jars import cache_folder
from tools.spark_jvm import spark_home

_SCRIPT = """\
#!/bin/sh
# tools/spark_python.py: without the zips of Spark's python/lib.
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=${kept:+$kept:}$place ;;
    esac
done
export PYTHONPATH="$kept"
exec PYTHON "$@"
"""


def quick_python() -> str:
    """A program for PYSPARK_PYTHON: this interpreter, which loads PySpark from its own folder."""
    if not spark_home().parent.samefile(sysconfig.get_paths()["purelib"]):
        return sys.executable  # its own folder has another PySpark, or none
    text = _SCRIPT.replace("PYTHON ", f"{shlex.quote(sys.executable)} ")
    program = cache_folder() / "spark" / f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        written = program.with_suffix(f".{os.getpid()}")
        written.write_text(text)
        written.chmod(0o755)
        written.rename(program)
    return str(program)
