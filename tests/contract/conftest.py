"""What the contract suites share: the S3 servers."""

from tests.support.counted_s3 import counted_s3
from tests.support.s3_server import s3_bucket, s3_server

__all__ = ["counted_s3", "s3_bucket", "s3_server"]
