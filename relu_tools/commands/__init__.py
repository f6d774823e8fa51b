"""The commands of `relu-tools`, a module each."""
