"""Runs jobs of the folder spark_jobs one after the other in one process, so that a JVM is started once. Each job makes
its own session, and stops it. The argument is a JSON file with their command lines."""

import json
import runpy
import sys
from pathlib import Path

for words in json.loads(Path(sys.argv[1]).read_text()):
    # As the interpreter does for the script that it is given.
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        print("ended with", end.code, flush=True)
