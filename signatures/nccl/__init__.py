"""NCCL's own rules, version by version: protocols, how bytes are split over channels, and its codes."""
