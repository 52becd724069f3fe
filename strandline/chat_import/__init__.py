"""Importing chats: from JSONL, from other libraries' tables, and from the exports of ChatGPT and Claude."""
