"""Statements run in a transaction: each staged whole, or not at all.

kinds        which statements there are: how each is read, and what runs it
execution    the statements of a text, one after the other
desk         what a statement works with: its transaction's tables, relations, parameters
relations    rows that are given with a text, as frames under names
values       VALUES that need no engine
defaults     what a column has when a statement says nothing of it
insert, mutations, merge, tables      what runs each kind
merge_plan   the SQL that a MERGE becomes
needed_rows  which rows of its target it can do without
refusals     what is said when an engine refuses a statement
reports      what was done
"""
