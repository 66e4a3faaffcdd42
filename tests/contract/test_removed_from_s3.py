"""A lake on S3 that is removed while a handle has it open."""

from __future__ import annotations

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers
from tests.support.s3_server import S3Server

import tidelock
from tidelock import errors
from tidelock.store.objects.kinds.location import locate


@pytest.mark.parametrize("what", ["everything", "the log"])
def test_nothing_is_acknowledged_in_a_lake_that_was_removed(
    s3_server: S3Server, s3_bucket: str, what: str
) -> None:
    uri, options = f"s3://{s3_bucket}/lake", s3_server.storage_options
    with tidelock.open(uri, create=True, storage_options=options) as lake:
        lake.create_table("t", NUMBERS_DDL)
        lake.run(lambda tx: tx.append("t", numbers((1, 1))))
        objects = locate(uri, options).table_objects()
        for info in objects.list("" if what == "everything" else "_tidelock/log"):
            objects.delete(info.key)
        with pytest.raises(errors.LakeRemoved):
            lake.run(lambda tx: tx.overwrite("t", numbers((2, 2))))


@pytest.mark.parametrize("act", ["branch", "tag", "hold"])
def test_no_name_is_given_in_a_lake_that_was_removed(
    s3_server: S3Server, s3_bucket: str, act: str
) -> None:
    uri, options = f"s3://{s3_bucket}/lake", s3_server.storage_options
    with tidelock.open(uri, create=True, storage_options=options) as lake:
        lake.create_table("t", NUMBERS_DDL)
        objects = locate(uri, options).table_objects()
        for info in objects.list(""):
            objects.delete(info.key)
        # Within a second of a commit the head is known without a look at the store.
        acts = {"branch": lake.create_branch, "tag": lake.tag, "hold": lake.hold}
        with pytest.raises(errors.LakeRemoved):
            acts[act]("x")


def test_a_record_that_is_gone_from_the_middle_is_named(
    s3_server: S3Server, s3_bucket: str
) -> None:
    uri, options = f"s3://{s3_bucket}/lake", s3_server.storage_options
    with tidelock.open(uri, create=True, storage_options=options) as lake:
        lake.create_table("t", NUMBERS_DDL)
        for number in range(4):
            lake.run(lambda tx, n=number: tx.append("t", numbers((n, n))))
    key = f"_tidelock/log/main/{3:020}.json"
    locate(uri, options).table_objects().delete(key)
    with tidelock.open(uri, storage_options=options) as lake:
        with pytest.raises(errors.CorruptObject, match=r"Version 3 .* is missing from the log"):
            lake.log(limit=None)
        assert [(one.key, one.what) for one in lake.verify().damaged] == [(key, "missing")]
