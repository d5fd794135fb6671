"""Modules that are written beside another trainer's own files. Nothing of the lab imports them."""
