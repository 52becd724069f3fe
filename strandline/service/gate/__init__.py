"""What a request passes before it is answered: its key, its permit, its body, and the form of a refusal."""
