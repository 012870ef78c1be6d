"""What lies beside a trace: NCCL logs, profiler dumps, files of assumptions."""
