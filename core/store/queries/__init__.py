"""Every SQL query of the project: one module a page, functions that return data frames."""
