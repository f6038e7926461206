"""The folder of an application, as its JVM names it."""

from __future__ import annotations

import os
from typing import Any

from kafka_sink.options.host.files import OWN_FOLDER

_SPARK = "org.apache.spark."
# Class, method and result class, from Spark's environment to the folders that it passes to Python processes.
_WAY_TO_FOLDERS = (
    (_SPARK + "SparkEnv", "get", _SPARK + "SparkEnv"),
    (_SPARK + "SparkEnv", "blockManager", _SPARK + "storage.BlockManager"),
    (_SPARK + "storage.BlockManager", "diskBlockManager", _SPARK + "storage.DiskBlockManager"),
    (_SPARK + "storage.DiskBlockManager", "localDirs", "[Ljava.io.File;"),
)


def folder_of_jvm(jvm: Any) -> str | None:
    """That of the application which runs in this JVM; None: none does. `jvm` is py4j's view of it."""
    found: Any = None
    for owner, method, result in _WAY_TO_FOLDERS:
        found = _call_java(jvm, found, owner, method, result)
        if found is None:
            return None
    return os.path.join(str(found[0].getPath()), OWN_FOLDER)


def _call_java(jvm: Any, target: Any, owner: str, method: str, result: str) -> Any:
    """py4j looks a method up among all methods of its class, and one of SparkEnv's refers to a class that Spark's
    distribution lacks (seen on PySpark 4.3). A method handle resolves only the requested one. No target: static."""
    types = jvm.java.lang.invoke
    kind = types.MethodType.methodType(jvm.java.lang.Class.forName(result))
    find = types.MethodHandles.publicLookup()
    cls = jvm.java.lang.Class.forName(owner)
    arguments = jvm.java.util.ArrayList()
    if target is None:
        return find.findStatic(cls, method, kind).invokeWithArguments(arguments)
    arguments.add(target)
    return find.findVirtual(cls, method, kind).invokeWithArguments(arguments)
