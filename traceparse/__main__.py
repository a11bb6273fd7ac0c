"""``python -m traceparse``."""

from traceparse.cli import main

if __name__ == "__main__":
    main()
