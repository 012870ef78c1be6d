"""What verbs share: groups of options, reading a trace as asked, solving a graph as asked, printing."""
