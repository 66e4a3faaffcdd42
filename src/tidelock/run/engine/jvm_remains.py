"""What PySpark keeps of a JVM that died, cleared away.

Owns: PySpark's own record of the one JVM that a process may have. PySpark never doubts it: after
its JVM died, every session, and every attempt to start another, speaks to where it was, for as long
as the process lives. This is the only module that looks behind the session.
"""

from __future__ import annotations

from typing import Any

from tidelock.store.spark.sessions import why_gone


def forget_dead_jvm(ours: Any) -> bool:
    """Let PySpark start anew if its JVM died, or ended its context by itself.

    `ours` is the gateway to a JVM that was started here, if there is one. Whether it is gone.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    context: Any = SparkContext._active_spark_context
    session: Any = SparkSession._instantiatedSession
    if context is None or context._jsc is None:
        # Nothing runs. The JVM of an earlier session may live, and is then used again.
        if not _has_ended(SparkContext._gateway, ours):
            return False
    elif session is None or why_gone(session) is None:
        return False
    if context is not None:
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.shutdown()
        context._jsc = context._accumulatorServer = None
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if ours is not None:
        # One whose context ended by itself, as for lack of memory, is not to be trusted either.
        ours.proc.kill()
        ours.proc.wait()
    return True


def _has_ended(gateway: Any, ours: Any) -> bool:
    """Whether the JVM behind a gateway is a process that has ended."""
    if gateway is None:
        return False
    # A gateway answers for any attribute that it has not by asking its JVM.
    process = vars(gateway).get("proc") or (ours and ours.proc)
    return process is not None and process.poll() is not None
