"""Stands before the package of this name on the path of Ray's processes, as if it were not installed.

Each of Ray's processes imports jsonschema, which imports that package where it is there; it comes with Jupyter and spends
seconds of work on compiling a grammar. Ray gives its processes fifteen seconds to start.
"""

raise ImportError(__doc__)
