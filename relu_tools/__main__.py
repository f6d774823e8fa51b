"""`python -m relu_tools` is `relu-tools`."""

from relu_tools.cli import run

if __name__ == "__main__":
    run()
