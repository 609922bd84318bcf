"""What the audit log tells: which requests another mode or policy would refuse, and which decisions were made."""
