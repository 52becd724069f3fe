"""Drops what psycopg and its pools log of our own pools: Strandline says it once, with the reason.

They log each broken connection and each attempt, with the server's answer.  Other pools log as before.
"""

from __future__ import annotations

import logging

import psycopg

from strandline.schemas.postgres.deadlines import AsyncBoundedConnection, BoundedConnection


class PoolName(str):
    """The name of a pool of ours, by which its records are known."""

    __slots__ = ()


class _NotOurs(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        subjects = record.args if isinstance(record.args, tuple) else ()
        return record.levelno != logging.WARNING or not any(map(_is_ours, subjects))


def _is_ours(subject: object) -> bool:
    if isinstance(subject, (psycopg.Transaction, psycopg.AsyncTransaction)):
        subject = subject.connection
    return isinstance(subject, (PoolName, BoundedConnection, AsyncBoundedConnection))


def leave_out_ours() -> None:
    """Have the loggers of psycopg leave our pools out; called once, as this module is imported."""
    for name in ("psycopg", "psycopg.pool"):
        logging.getLogger(name).addFilter(_NotOurs())


leave_out_ours()
