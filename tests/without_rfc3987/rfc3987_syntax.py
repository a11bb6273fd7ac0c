"""Stands before the package of this name on a path of modules, as if it were not installed.

jsonschema imports that package where it is there, and with it each process that draws with Altair and each of Ray's. It comes
with Jupyter and spends three seconds of work on compiling a grammar, for addresses that no test checks. Ray gives its
processes fifteen seconds to start.
"""

raise ImportError(__doc__)
