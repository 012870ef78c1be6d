"""One file per NCCL algorithm, the table of all of them, and what is done through that table."""
