"""The commands of the command line by family: options declared, a Python call, its printing."""
