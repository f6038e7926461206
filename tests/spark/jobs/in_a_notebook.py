"""Runs a job as a notebook does, in a kernel, and prints the notebook with all outputs.

Usage: python in_a_notebook.py JOB ORDER. Before the job, each write and statement of its order has a cell, which is not
expected to succeed: its traceback is an output.
"""

import json
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

SETUP = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
sys.argv = {arguments!r}
order = json.loads(Path(sys.argv[1]).read_text())
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE IF NOT EXISTS doors (value STRING) USING `pykafka-sink`")
frame = spark.range(2).selectExpr("cast(id as string) as value")
"""
WRITE = 'frame.write.format("pykafka-sink").mode("append").options(**order["writes"][{}]["options"]).save()'
TABLE = 'frame.selectExpr("value", "1 AS more").writeTo("doors").options(**order["writes"][{}]["options"]).append()'
STATEMENT = 'spark.sql(order["statements"][{}])'
SHOWN = 'frame.write.options(**order["accepted"])'

arguments = sys.argv[1:]
job, order = (Path(argument).read_text() for argument in arguments)
given = json.loads(order)
kernel = Path("jupyter", "kernels", "here")
kernel.mkdir(parents=True, exist_ok=True)
command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
(kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
os.environ["JUPYTER_DATA_DIR"] = str(kernel.parents[1].absolute())

cells = [SETUP.format(arguments=arguments), SHOWN]
cells += [form.format(number) for form in (WRITE, TABLE) for number in range(len(given["writes"]))]
cells += [STATEMENT.format(number) for number in range(len(given["statements"]))]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (*cells, job)])
NotebookClient(notebook, timeout=300, kernel_name="here", allow_errors=True).execute()
print(nbformat.writes(notebook))
