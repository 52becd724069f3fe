"""Models of providers: called at their pace, and not while they are down."""
