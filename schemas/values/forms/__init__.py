"""What providers' forms of a message have in common, and the form that one of them takes."""
