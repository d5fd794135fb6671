"""The parts of the Polarity page: each draws what its reader has chosen to see, and nothing else is read."""
