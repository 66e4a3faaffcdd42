"""Export a Parquet file to a folder of Parquet files with dlt: `dlt_export.py file folder times`.

Prints the seconds of each run as a JSON list. Rows are given to it as Arrow batches, the quickest
way that it has; every run is a pipeline of its own, so that each exports everything.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dlt
import pyarrow as pa
import pyarrow.parquet as pq

file, folder, times = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])


@dlt.resource(name="orders")
def orders() -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(file).iter_batches(batch_size=131_072)


def export(number: int) -> None:
    pipeline = dlt.pipeline(
        pipeline_name=f"export_{number}",
        pipelines_dir=str(folder / "state"),
        destination=dlt.destinations.filesystem(bucket_url=(folder / f"to_{number}").as_uri()),
        dataset_name="orders",
    )
    pipeline.run(orders(), loader_file_format="parquet")
    written = (folder / f"to_{number}").rglob("*.parquet")
    count = sum(pq.ParquetFile(one).metadata.num_rows for one in written)
    assert count == pq.ParquetFile(file).metadata.num_rows, count


took = []
for number in range(times):
    began = time.perf_counter()
    export(number)
    took.append(time.perf_counter() - began)
print(json.dumps(took))
