"""What people see: words and tables for a terminal, pictures, and in :mod:`~atlas_lp.report.page` one HTML page."""
