"""A test's database leaves nothing on the server that the next test could see."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from tests.conftest import rows_of, wait_until
from tests.support.servers.databases import temporary_database


def test_sessions_that_a_test_leaves_behind_end_with_its_database(stack: EmbeddedStack) -> None:
    with temporary_database(stack.database_url) as url:
        left = psycopg.connect(url)
    with closing(left):
        pid, there = left.info.backend_pid, "SELECT FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: not rows_of(stack.database_url, there, pid), timeout=1, what="its end")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
