"""Reading other libraries' tables, row by row."""
