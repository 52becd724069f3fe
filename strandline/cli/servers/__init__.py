"""What commands work on: servers, the memories on them, worker processes, and the options that name them."""
