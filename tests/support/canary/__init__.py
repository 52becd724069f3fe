"""A marked word in everything that holds what users say, and every place where it may be found."""
