"""``python -m tests.strandline.service.pages.write_picture``: docs/page.png, of the sample conversation."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.deploy.embedded.stack import start_stack
from tests.strandline.service.pages.browsing import Walk, begun_world, opened_browser
from tests.support.servers.databases import template

ROOT = Path(__file__).resolve().parents[4]
SAMPLE = ROOT / "strandline/samples/conversation.jsonl"
MESSAGES_AT_ONCE = 40


def main() -> None:
    """Put the sample, let a model refuse one more session, and take the picture."""
    messages = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    with TemporaryDirectory() as home, start_stack(Path(home), with_broker=True) as stack:
        assert stack.broker_url is not None
        with (
            template(stack.database_url),
            begun_world(stack, stack.broker_url) as world,
            opened_browser() as browser,
            Walk(world, browser, viewport={"width": 1100, "height": 760}) as walk,
        ):
            with world.service.client(world.keys[1], user="maren") as client:
                for start in range(0, len(messages), MESSAGES_AT_ONCE):
                    part = messages[start : start + MESSAGES_AT_ONCE]
                    client.post("/v1/sessions/boat/messages", json={"messages": part}).raise_for_status()
                    client.post("/v1/sessions/boat/flush", json={"all": True}).raise_for_status()
            world.settle()
            world.model.behave(wrong_schema=True)
            world.put("harbour", "maren", "The mooring is paid until June.")
            world.await_dead("harbour")
            walk.log_in()
            walk.page.screenshot(path=str(ROOT / "docs/page.png"))


if __name__ == "__main__":
    main()
