"""Pictures as files (SVG, PNG, PDF), drawn by matplotlib: equal inputs give equal bytes."""
