"""Attacks on the whole product: damaged inputs of every format, and random schedules judged by brute force."""
