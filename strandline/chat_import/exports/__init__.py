"""Importing the chats that people export from ChatGPT and Claude."""
