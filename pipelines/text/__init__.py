"""Words as searches and facts see them."""
