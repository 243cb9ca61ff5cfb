"""One consumer as a member of its group: the control plane, the listener's calls, topics, and commits."""
