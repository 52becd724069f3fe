"""Proxies between a client and a server that cut answers, or let them wait."""
