"""Rules: what must hold of committed rows, checked before each publication.

    related      which rules a change concerns; asked of every commit, so it is quick to say: none
    deltas       the rows that came to a table, and those that left it, between two pins
    prospect     the tables as they would be, and how rows are looked up in them
    limits       how many rows are compared here, and from how many on by Spark
    kinds        one file for each kind of rule, and a table that lists them
    verification compares changes with the rules that they concern
    foundations  whether tables can stand together: what is referred to is there
    follow       what leaves with the rows it refers to: ON DELETE CASCADE and SET NULL
    rule_checks  the rules of one transaction, over all its attempts to publish
    listing      the rules of a table, as they are shown

Invariant: every head satisfies all rules of its tables. So only what a commit changes is to be
compared with the rest: the rows that come must agree with everything there is, and what is left
must still agree without the rows that leave.
"""
