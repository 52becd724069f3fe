"""The token budget of a read: what stays, what fills the room, what is cut or left out; pure functions."""
