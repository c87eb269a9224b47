"""What is measured: a module a stage, a function a way, each run in a process of its own."""
