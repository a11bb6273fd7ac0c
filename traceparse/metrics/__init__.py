"""What happened in each run: scores, clock, activity, phases, ROI. Table to table, one run at a time; no I/O and no wall clock."""
