"""The catalogue of operations: what can be done with a session, an owner's facts, or a namespace.

Each operation is a function of plain values that yields its effects.  The faces (``SessionMemory``,
``OwnerFacts``, ``NamespaceFacts``) offer it sync and async.
"""
