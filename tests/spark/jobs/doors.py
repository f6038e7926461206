"""Writes and mistakes with secrets in options, in a classic session or one of Spark Connect, and what Spark serves.

The argument is a JSON file: options of writes and whether they succeed, options that are shown in plans, and in which
modes of Spark's explanation, settings of the session, the port of the UI, and where to keep its pages. `remote` names
a server of Spark Connect. `second` are writes through `kafka_sink.write`, `streams` through `foreach_batch` or the
format.
"""

import json
import pickle
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

import kafka_sink

order = json.loads(Path(sys.argv[1]).read_text())
builder = SparkSession.builder
spark = (builder.remote(order["remote"]) if order["remote"] else builder).getOrCreate()
for name, value in order["settings"].items():
    spark.conf.set(name, value)
spark.sql("CREATE TABLE IF NOT EXISTS doors (value STRING) USING `pykafka-sink`")
frame = spark.range(2).selectExpr("cast(id as string) as value")


def fails(what: str, function: object) -> bool:
    try:
        function()
    except Exception as error:
        print("error", what, type(error), error, repr(error), pickle.dumps(str(error)))
        for name in ("getStackTrace", "getMessageParameters", "desc"):
            shown = getattr(error, name, None)
            print(name, shown() if callable(shown) else shown)
        return True
    return False


for write in order["writes"]:
    options, what = write["options"], write["name"]
    failed = fails(what, frame.write.format("pykafka-sink").options(**options).mode("append").save)
    assert failed is not write["succeeds"], what
    print("done", what, failed)
for write in order.get("second", ()):
    options, what = write["options"], write["name"]
    failed = fails(what, lambda options=options: kafka_sink.write(frame, options))
    assert failed is not write["succeeds"], what
    print("done, second door", what, failed)


def run_stream(number: int, options: dict[str, str]) -> None:
    source = Path(order["local"], f"source-{number}")
    source.mkdir()
    (source / "one.txt").write_text("a\nb\n")
    writer = spark.readStream.text(str(source)).writeStream
    if order.get("is_stream_by_format"):
        writer = writer.format("pykafka-sink").options(**options)
    else:
        named = {**options, "sink.id": f"canaries-{number}", "query.id": str(number)}
        writer = writer.foreachBatch(kafka_sink.foreach_batch(named))
    writer = writer.option("checkpointLocation", str(Path(order["local"], f"checkpoint-{number}")))
    writer.trigger(availableNow=True).start().awaitTermination()


for number, write in enumerate(order.get("streams", ())):
    failed = fails(write["name"], lambda number=number, options=write["options"]: run_stream(number, options))
    assert failed is not write["succeeds"], write["name"]
    print("done, stream", write["name"], failed)
for mode in order["modes"]:
    spark.conf.set("spark.sql.ui.explainMode", mode)
    for options in order["shown"]:
        frame.writeTo("doors").options(**order["accepted"]).append()
        # Refused by the sink, and before by Spark's analyser, which shows the plan.
        assert fails(mode, frame.writeTo("doors").options(**options).append)
        assert fails(mode, frame.selectExpr("value", "1 AS more").writeTo("doors").options(**options).append)
for options in order["explained"]:
    given = ", ".join(f"`{name}` = '{value}'" for name, value in options.items())
    for mode in ("", "EXTENDED", "CODEGEN", "COST", "FORMATTED"):
        statement = f"EXPLAIN {mode} INSERT INTO doors WITH ({given}) SELECT cast(id AS string) FROM range(2)"
        fails(mode, lambda statement=statement: spark.sql(statement).show(100, truncate=False))
    fails("SQL", lambda given=given: spark.sql(f"INSERT INTO doors WITH ({given}) SELECT 1, 2").collect())
for number, statement in enumerate(order["statements"]):
    print("statement", number, fails("SQL", lambda statement=statement: spark.sql(statement).collect()))


def fetch(path: str) -> str:
    url = f"http://127.0.0.1:{order['ui']}{path}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        text = f"{error.code} {error.read().decode(errors='replace')}"
    Path(order["pages"], re.sub(r"\W+", "-", path)[:100]).write_text(text)
    return text


application = re.findall(r'"id" : "([^"]+)"', fetch("/api/v1/applications"))[0]
of_rest = f"/api/v1/applications/{application}"
for path in ("jobs", "stages?details=true", "environment"):
    fetch(f"{of_rest}/{path}")
executions = json.loads(fetch(f"{of_rest}/sql?details=true&planDescription=true&length=1000"))
pages = ["/SQL/", "/jobs/", "/stages/", "/environment/", "/executors/", "/connect/"]
for path in pages + [f"/SQL/execution/?id={each['id']}" for each in executions]:
    fetch(path)
print("pages", len(executions))
for kind, pattern in (("figures", "**/pykafka-sink/**/*"), ("checkpoint", "checkpoint-*/**/*")):
    files = [each for each in Path(order["local"]).glob(pattern) if each.is_file()]
    for number, path in enumerate(files):
        Path(order["pages"], f"{kind}-{number}").write_bytes(path.read_bytes())
    print(kind, len(files))
spark.stop()
print("end")
