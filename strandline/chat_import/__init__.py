"""Importing chats from JSONL."""
