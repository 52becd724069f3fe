"""Taking messages back: corrections, pops, resets; and forks, which keep them."""
