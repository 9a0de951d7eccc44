"""Shardferry: pack small-file datasets, stage them onto the node's SSD, feed them to training, say where time goes."""

__version__ = "0.1.0"
