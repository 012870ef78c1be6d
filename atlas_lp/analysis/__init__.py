"""What the answer is: one solved :class:`~atlas_lp.program.job.Job` in, plain values out."""
