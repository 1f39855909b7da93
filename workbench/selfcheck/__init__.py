"""The self-check loop: generate, evaluate, diagnose, retry with feedback."""
