"""Parts of the faces of facts: what `owner_facts.py` and `namespace_facts.py` put together."""
