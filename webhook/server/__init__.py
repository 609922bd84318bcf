"""AdmissionReviews over HTTPS: bytes in, the engine's decision, bytes out."""
