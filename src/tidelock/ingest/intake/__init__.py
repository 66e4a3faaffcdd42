"""From what a source's transaction did, change by change, to one commit of the lake."""
