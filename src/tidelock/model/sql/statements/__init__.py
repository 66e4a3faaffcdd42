"""Statements that change tables: their text read into values. What they mean to a lake is for the
store; what their conditions and expressions mean is for Spark, to which they go as written.

    definition   the values that statements are read into
    changes      INSERT, UPDATE, DELETE, TRUNCATE
    merge        MERGE
"""
