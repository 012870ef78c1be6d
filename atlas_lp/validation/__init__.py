"""The same trace by other means: the graph of all messages, an LP solver, LogGOPSim, and the measurement."""
