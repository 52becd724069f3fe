"""Commands of ``strandline``, run to their end in the test's own process."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from strandline.cli.entry import run


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def run_here(*arguments: str, on: str | None = None) -> Ended:
    """Run it on the database of the URL ``on``, or on the one that the environment names."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*arguments, *(["--database-url", on] if on else [])])
    return Ended(code, out.getvalue(), err.getvalue())
