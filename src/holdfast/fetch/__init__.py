"""What to do about each answer to a Fetch request: pure, and the same for every reader of ours.

`values` are the words, `planner` the rules. `net` asks the brokers and does what the planner says.
"""
