"""The process that leaves the group for a member that was killed, and what it is told."""
