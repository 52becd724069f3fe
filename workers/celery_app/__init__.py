"""The Celery application: how hints arrive, and how a worker process ends."""
