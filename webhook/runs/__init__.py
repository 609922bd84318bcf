"""What a person does to a cluster by command: with that person's own rights, and only when told to."""
