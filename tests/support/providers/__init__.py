"""What providers take, as checks, and logs that are drawn to try them."""
