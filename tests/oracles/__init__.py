"""Judges that share no line with what they judge: brute force and simulators over plain columns and numbers.

Nothing here imports atlas_lp, which `tests/test_suite.py` holds.  Helpers unpack the objects of the code into columns.
"""
