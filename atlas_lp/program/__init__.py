"""The composition graph of a trace: collectives, what lies between them, and the changes one may ask about."""
