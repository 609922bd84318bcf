"""What a cluster holds now, judged as admission would judge it: results, reports in the cluster, metrics."""
