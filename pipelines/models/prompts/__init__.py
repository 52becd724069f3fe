"""The instructions that models are given, one Markdown file per task, and how a task is rendered."""
