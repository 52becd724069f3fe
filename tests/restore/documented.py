"""The commands of docs/operations.md, as they stand there, with the places of the drill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from strandline.deploy.embedded.wheel_binaries import postgres_programs

ROOT = Path(__file__).resolve().parent.parent.parent
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(beginning: str) -> str:
    """The example of docs/operations.md that begins so."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    found = [text for text in _BLOCK.findall(page) if text.startswith(beginning)]
    assert len(found) == 1, f"docs/operations.md has {len(found)} examples that begin with {beginning!r}"
    return str(found[0])


def run(example: str, folder: Path, places: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Run an example in ``folder`` as a shell does, with other names for its ``places``."""
    for place, stand_in in places.items():
        assert place in example, f"the example does not name {place}: {example}"
        example = example.replace(place, stand_in)
    own = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euc", example],
        cwd=folder,
        env={**os.environ, "PATH": f"{own}:{postgres_programs()}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{example}\n{done.stdout}{done.stderr}"
    return done.stdout
