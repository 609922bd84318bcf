"""The rehearsal: run a program, interrupt it as a cluster would, and see whether it goes on.

``local`` runs the program here: three starts in one directory, watched from outside (``watch``) and, where it is a
Python program, from within (``inside``). ``judge`` is pure: what was seen becomes findings and a verdict.
"""
