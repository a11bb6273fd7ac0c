"""Token estimates, list prices, exact apportioning; which tokens count for a run is for `traceparse.assemble`."""
