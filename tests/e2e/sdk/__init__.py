"""The Kubeflow SDK as a user has it: in an environment of its own, as it pins an older Kubernetes client than ours."""
