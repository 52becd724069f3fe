"""Bodies that go over HTTP: the models that the service and its client share."""
