"""The stager: brings the shards of a published dataset onto this node's disk, verified, for every job of the node.

Entry point for programs: :mod:`stager.cli`. Importing this package loads nothing else.
"""
