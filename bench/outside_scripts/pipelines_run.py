"""Run Spark Declarative Pipelines over a server that runs: `pipelines_run.py url folder views`.

`folder` has a folder of Parquet files for each source; `views` is a JSON object of queries by name.
Prints one line when it is ready, then runs the pipeline once for every line that it reads, and
prints the seconds. Starting Python and the session is not counted.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.pipelines.spark_connect_graph_element_registry import (
    SparkConnectGraphElementRegistry,
)
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

url, folder, views = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
spark = SparkSession.builder.remote(url).getOrCreate()
for source in ("orders", "customers"):
    spark.sql(f"CREATE TABLE {source} USING parquet LOCATION '{folder / source}'").collect()
definitions = ";\n".join(
    f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in views.items()
)


def run():
    graph = create_dataflow_graph(spark, "spark_catalog", "default", {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    registry.register_sql(definitions, Path("views.sql"))
    events = start_run(spark, graph, [], False, [], False, (folder / "storage").as_uri())
    for _ in events:
        pass


print(spark.table("orders").count(), flush=True)
for _ in sys.stdin:
    began = time.perf_counter()
    run()
    took = time.perf_counter() - began
    print(took, spark.table(list(views)[-1]).count(), flush=True)
spark.stop()
