"""From a signature to its exact envelope, whole or from rank to rank, solved once and kept in the cache."""
