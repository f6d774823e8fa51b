"""`python -m relu_tools` is `relu-tools`."""

from relu_tools.cli import main

if __name__ == "__main__":
    main()
