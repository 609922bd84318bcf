"""Fills a ``ClusterView``: from files here, from watch caches in a cluster."""
