"""The page: memory looked at and put right in a browser, by the service's own routes."""
