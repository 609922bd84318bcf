"""On nodes that run pods: image, manifests, certificates under load, replicas and nodes that go, removal."""
