"""From the records of single files to one job: who is who, which calls belong together, whose clock is whose."""
