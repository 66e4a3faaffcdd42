"""Landing places: folders and buckets whose files are taken, each exactly once.

settings     the options of a source of files, checked
pattern      which names a path with wildcards means
places       what is there: listings by columns, and files fetched as one state
discovery    what of it is new, what has changed, what is not ready
entries      what the ledger remembers of each file
plan         which files go into which commit
taking       one file, or what can be read of it, into a transaction
source       all of it together, as a source
"""
