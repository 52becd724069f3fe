"""Agents with a tool that go wrong as they are told: one module for each adapter, with the same driver."""
