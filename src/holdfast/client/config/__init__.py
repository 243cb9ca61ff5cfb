"""A consumer's configuration: its keys, checks, and warnings about settings that cause trouble later."""
