"""What runs in the user's own interpreter, from Python 3.8 on: standard library alone, nothing of this package."""
