"""Findings -> a format, one file each. Nothing here judges, reads or writes; every function returns text."""
