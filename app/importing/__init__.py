"""The parts of the Import page: what is to be imported, a look at it, how it goes, and what was imported before."""
