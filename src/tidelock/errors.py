"""Every error of Tidelock, as one tree.

TidelockError
  + InputError                 what was asked cannot be done as asked; never retry
  |   + InvalidName
  |   + InvalidOption
  |   + InvalidSchema
  |   + InvalidExpression
  |   + InvalidDefinition      a file of definitions cannot be applied; names file and line
  |   + CircularDefinition     stream tables that would be computed from themselves
  |   + UnsupportedType
  |   + WrongType              a value does not fit its column
  |   + RequiredColumnNull
  |   + DuplicateKey
  |   + RuleBroken             rows that a rule of their table does not allow
  |   + MultipleMatches        several source rows of a MERGE would change one row
  |   + KeyRequired
  |   + ColumnNotFound
  |   + TableNotFound
  |   + TableExists
  |   + TableInUse             a table that stream tables read or that rules refer to
  |   + TableReplaced          a range of changes holds two tables of one name, unlike each other
  |   + BranchNotFound
  |   + BranchExists
  |   + TagNotFound
  |   + TagExists
  |   + VersionNotFound
  |   + CommitNotFound
  |   + SnapshotExpired        the commit is known, its data was collected
  |   + LakeNotFound
  |   + LakeExists
  |   + ReadOnlyLake
  |   + LakeClosed             the handle was closed, or belongs to another process
  |   + TransactionClosed
  |   + StreamTableWrite       the rows of a stream table follow from its query
  |   + StreamTableRequired    the table is not a stream table
  |   + NotIncremental         a query that was to be kept by delta cannot be
  |   + DefinitionBroken       an input changed so that a stream table's query no longer holds
  |   + SinkNotFound
  |   + SinkExists
  |   + SourceNotFound
  |   + SourceExists
  + ConflictError              somebody else was first; refresh and retry
  |   + CommitConflict
  |   + PlanOutdated           a plan of schemas was made for others than there are by now
  |   + MergeConflict          both branches changed the same thing; resolve it, never retry
  |   + BranchDeleted
  |   + LeaseLost
  |   + ForeignCommit          another writer moved a mirrored table's Lance HEAD
  |   + SinkBusy               somebody else is delivering to this sink
  |   + SourceBusy             somebody else is reading this source
  |   + SourceMoved            somebody else has read the source further
  + OutcomeUnknown             the commit may or may not exist; look it up by its operation id
  + StoreError                 the object store did not do what was asked; back off
  |   + ObjectMissing
  |   + ObjectExists
  |   + StoreUnavailable
  |   |   + StoreFull          its disk is full: nothing of what was put is there
  |   + StoreDenied
  |   + LakeRemoved            the lake that was opened is gone, or another is in its place
  + FormatError                a durable object cannot be trusted; an operator must look
  |   + CorruptObject
  |   + NewerFormat
  |   + IntentUnreadable
  + EngineError                the engine is missing or refused
  |   + JavaMissing
  |   + EngineUnavailable
  |   + EngineMismatch         a stream table was made on an engine that has other types
  |   + QueryFailed
  + RefreshFailed              some stream tables could not be refreshed; what could, was
  + SourceError                a source could not be read
  |   + SourceUnavailable      it does not answer, or the connection was lost; it is tried again
  |   + SourceDenied           a permission is missing
  |   + SourceStopped          it cannot go on by itself: what was to be read is gone, say
  |   + SourceDiverged         what it gives again is not what it gave before
  + DeliveryError              a sink could not deliver
  |   + SinkStopped            it cannot tell how far it has come, or what it follows is gone
  |   + SinkLapsed             what it had still to deliver was removed
  |   + DestinationFailed      the destination did not take a chunk; it is sent again later
  |   + ChunkRefused           the destination will never take a chunk; it is put aside

BrokenInvariant is not in the tree: it is a bug in Tidelock, and says so.

Each class has a stable `condition`, an `action` (what the caller should do), and its evidence as
attributes. Messages say what happened, then what to do. What to do is an `Advice` wherever it is
written differently in Python and in a shell. All of them pickle, because they cross Spark workers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal

Door = Literal["python", "shell"]


class Action(enum.Enum):
    """What the caller of a failed operation should do."""

    NEVER_RETRY = "never_retry"
    REFRESH_AND_RETRY = "refresh_and_retry"
    LOOK_UP_OUTCOME = "look_up_outcome"
    BACK_OFF = "back_off"


@dataclass(frozen=True)
class Advice:
    """What to do about an error, in sentences, as it is written in Python and in a shell."""

    python: str
    shell: str

    def told(self, door: Door) -> str:
        return self.python if door == "python" else self.shell


class TidelockError(Exception):
    """The root of every error. `message` says what happened, `advice` what to do about it; `str`
    is both in Python's words. `evidence` is also readable as attributes."""

    condition = "TIDELOCK_ERROR"
    action = Action.NEVER_RETRY

    def __init__(self, message: str, advice: Advice | None = None, /, **evidence: Any) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.evidence = evidence

    def told(self, door: Door) -> str:
        """What happened and what to do about it, as a reader at that door would do it. Reasons that
        are kept, and read by operators, are told as in a shell."""
        if self.advice is None:
            return self.message
        return f"{self.message} {self.advice.told(door)}".rstrip()

    def __str__(self) -> str:
        return self.told("python")

    def __getattr__(self, name: str) -> Any:
        evidence = self.__dict__.get("evidence", {})
        if name in evidence:
            return evidence[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.advice, self.evidence)

    def to_dict(self, door: Door = "python") -> dict[str, Any]:
        """The error as plain values, for `--json` output and logs. The message has the advice in
        it, which also stands alone where there is one."""
        advice = {} if self.advice is None else {"advice": self.advice.told(door)}
        return {
            "condition": self.condition,
            "action": self.action.value,
            "message": self.told(door),
            **advice,
            **{name: _plain(value) for name, value in self.evidence.items()},
        }


def _rebuild(
    kind: type[TidelockError], message: str, advice: Advice | None, evidence: dict[str, Any]
) -> TidelockError:
    return kind(message, advice, **evidence)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)


class InputError(TidelockError):
    condition = "INPUT_ERROR"


class InvalidName(InputError):
    condition = "INVALID_NAME"


class InvalidOption(InputError):
    condition = "INVALID_OPTION"


class InvalidSchema(InputError):
    condition = "INVALID_SCHEMA"


class InvalidExpression(InputError):
    condition = "INVALID_EXPRESSION"


class CircularDefinition(InputError):
    """Evidence: path, the names in the order in which data would flow, the first one repeated."""

    condition = "CIRCULAR_DEFINITION"


class InvalidDefinition(InputError):
    """A definition in a file cannot be used. Evidence: file, line."""

    condition = "INVALID_DEFINITION"


class UnsupportedType(InputError):
    condition = "UNSUPPORTED_TYPE"


class WrongType(InputError):
    condition = "WRONG_TYPE"


class RequiredColumnNull(InputError):
    condition = "REQUIRED_COLUMN_NULL"


class DuplicateKey(InputError):
    condition = "DUPLICATE_KEY"


class RuleBroken(InputError):
    """Rows would break a rule. Evidence: table, rule, kind, count, reason, and the first rows, each
    as a mapping of columns to values."""

    condition = "RULE_BROKEN"


class MultipleMatches(InputError):
    """Evidence: table, columns, values: the rows that are matched more than once."""

    condition = "MULTIPLE_MATCHES"


class KeyRequired(InputError):
    condition = "KEY_REQUIRED"


class ColumnNotFound(InputError):
    condition = "COLUMN_NOT_FOUND"


class TableNotFound(InputError):
    condition = "TABLE_NOT_FOUND"


class TableExists(InputError):
    condition = "TABLE_EXISTS"


class TableInUse(InputError):
    """Evidence: table, dependents."""

    condition = "TABLE_IN_USE"


class TableReplaced(InputError):
    condition = "TABLE_REPLACED"


class BranchNotFound(InputError):
    condition = "BRANCH_NOT_FOUND"


class BranchExists(InputError):
    condition = "BRANCH_EXISTS"


class TagNotFound(InputError):
    condition = "TAG_NOT_FOUND"


class TagExists(InputError):
    condition = "TAG_EXISTS"


class VersionNotFound(InputError):
    condition = "VERSION_NOT_FOUND"


class CommitNotFound(InputError):
    condition = "COMMIT_NOT_FOUND"


class SnapshotExpired(InputError):
    condition = "SNAPSHOT_EXPIRED"


class LakeNotFound(InputError):
    condition = "LAKE_NOT_FOUND"


class LakeExists(InputError):
    condition = "LAKE_EXISTS"


class ReadOnlyLake(InputError):
    condition = "READ_ONLY_LAKE"


class LakeClosed(InputError):
    condition = "LAKE_CLOSED"


class TransactionClosed(InputError):
    condition = "TRANSACTION_CLOSED"


class StreamTableWrite(InputError):
    condition = "STREAM_TABLE_WRITE"


class StreamTableRequired(InputError):
    condition = "STREAM_TABLE_REQUIRED"


class NotIncremental(InputError):
    condition = "NOT_INCREMENTAL"


class DefinitionBroken(InputError):
    condition = "DEFINITION_BROKEN"


class SinkNotFound(InputError):
    condition = "SINK_NOT_FOUND"


class SinkExists(InputError):
    condition = "SINK_EXISTS"


class SourceNotFound(InputError):
    condition = "SOURCE_NOT_FOUND"


class SourceExists(InputError):
    condition = "SOURCE_EXISTS"


class ConflictError(TidelockError):
    condition = "CONFLICT"
    action = Action.REFRESH_AND_RETRY


class CommitConflict(ConflictError):
    """Another commit was first. Evidence: table, expected, actual, operation_id; version, which of
    them it was, where that is known; row and rows, those that both touched; filter, what of the
    table a serializable transaction has read."""

    condition = "COMMIT_CONFLICT"


class PlanOutdated(ConflictError):
    """Schemas changed since a plan was made. Evidence: tables, expected, actual."""

    condition = "PLAN_OUTDATED"
    action = Action.NEVER_RETRY


class MergeConflict(ConflictError):
    """Two branches changed the same thing, each in its own way, and nothing was published.

    Evidence: source, target, conflicts (values of model/history/conflicts.py, all of them up to a
    bound), count.
    """

    condition = "MERGE_CONFLICT"
    action = Action.NEVER_RETRY

    def to_dict(self, door: Door = "python") -> dict[str, Any]:
        told = [one.to_dict() for one in self.evidence.get("conflicts", ())]
        return {**super().to_dict(door), "conflicts": told}


class BranchDeleted(ConflictError):
    condition = "BRANCH_DELETED"
    action = Action.NEVER_RETRY


class LeaseLost(ConflictError):
    condition = "LEASE_LOST"


class ForeignCommit(ConflictError):
    condition = "FOREIGN_COMMIT"
    action = Action.NEVER_RETRY


class SinkBusy(ConflictError):
    """Evidence: sink, owner, since and until: when its lease runs out if it is gone."""

    condition = "SINK_BUSY"


class SourceBusy(ConflictError):
    """Evidence: source, owner, since and until: when its lease runs out if it is gone."""

    condition = "SOURCE_BUSY"


class SourceMoved(ConflictError):
    """Evidence: expected and actual positions, operation_id."""

    condition = "SOURCE_MOVED"


class OutcomeUnknown(TidelockError):
    """A publishing put was not answered. Evidence: operation_id, branch, version."""

    condition = "OUTCOME_UNKNOWN"
    action = Action.LOOK_UP_OUTCOME


class StoreError(TidelockError):
    condition = "STORE_ERROR"
    action = Action.BACK_OFF


class ObjectMissing(StoreError):
    condition = "OBJECT_MISSING"
    action = Action.NEVER_RETRY


class ObjectExists(StoreError):
    condition = "OBJECT_EXISTS"
    action = Action.NEVER_RETRY


class StoreUnavailable(StoreError):
    """The store failed or did not answer; a write may or may not have been applied."""

    condition = "STORE_UNAVAILABLE"


class StoreFull(StoreUnavailable):
    """There is no room. Unlike its parent, it says that the write was not applied."""

    condition = "STORE_FULL"


class StoreDenied(StoreError):
    condition = "STORE_DENIED"
    action = Action.NEVER_RETRY


class LakeRemoved(StoreError):
    """Evidence: uri."""

    condition = "LAKE_REMOVED"
    action = Action.NEVER_RETRY


class FormatError(TidelockError):
    condition = "FORMAT_ERROR"


class CorruptObject(FormatError):
    condition = "CORRUPT_OBJECT"


class NewerFormat(FormatError):
    condition = "NEWER_FORMAT"


class IntentUnreadable(FormatError):
    condition = "INTENT_UNREADABLE"


class EngineError(TidelockError):
    condition = "ENGINE_ERROR"


class JavaMissing(EngineError):
    condition = "JAVA_MISSING"


class EngineUnavailable(EngineError):
    condition = "ENGINE_UNAVAILABLE"


class EngineMismatch(EngineError):
    """Evidence: table, expected and actual columns, made_on, engine."""

    condition = "ENGINE_MISMATCH"


class QueryFailed(EngineError):
    condition = "QUERY_FAILED"


class RefreshFailed(TidelockError):
    """Evidence: tables, those that failed."""

    condition = "REFRESH_FAILED"
    action = Action.BACK_OFF


class SourceError(TidelockError):
    """Evidence: source, and what else is known."""

    condition = "SOURCE_ERROR"
    action = Action.BACK_OFF


class SourceUnavailable(SourceError):
    condition = "SOURCE_UNAVAILABLE"


class SourceDenied(SourceError):
    condition = "SOURCE_DENIED"
    action = Action.NEVER_RETRY


class SourceStopped(SourceError):
    """Evidence: source, state (a word for what happened), reason."""

    condition = "SOURCE_STOPPED"
    action = Action.NEVER_RETRY


class SourceDiverged(SourceError):
    """Evidence: query, batch, version, expected and actual: the digests of both."""

    condition = "SOURCE_DIVERGED"
    action = Action.NEVER_RETRY


class DeliveryError(TidelockError):
    """Evidence: sink, and what else is known."""

    condition = "DELIVERY_ERROR"
    action = Action.BACK_OFF


class SinkStopped(DeliveryError):
    condition = "SINK_STOPPED"
    action = Action.NEVER_RETRY


class SinkLapsed(DeliveryError):
    condition = "SINK_LAPSED"
    action = Action.NEVER_RETRY


class DestinationFailed(DeliveryError):
    """Evidence: retry_after_seconds, when the destination said how long to wait."""

    condition = "DESTINATION_FAILED"


class ChunkRefused(DeliveryError):
    """Evidence: status, answer, body (what was sent)."""

    condition = "CHUNK_REFUSED"
    action = Action.NEVER_RETRY


class BrokenInvariant(AssertionError):
    """A bug in Tidelock: please report it with this message."""
