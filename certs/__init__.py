"""Certificates of the webhook: made, published and renewed. Start at ``rotation.py``.

A package of its own, run as a process of its own (``ckptguard certs``), and alone in holding the right to write. It
does not know ``webhook``, nor ``webhook`` it: what they share is a Secret in cert-manager's layout.
"""
