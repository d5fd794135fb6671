"""What leaves the lab: one module a destination."""
