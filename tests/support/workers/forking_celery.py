"""The application of ``forking_application`` as ``celery --app`` finds it."""

from tests.support.workers.forking_application import celery_application

celery = celery_application()
