"""What lies between the collectives of a trace: what each operation waited for, by either reading of the recording."""
