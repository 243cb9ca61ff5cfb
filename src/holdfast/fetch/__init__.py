"""What to do about each answer to a Fetch request: pure, and the same for all our readers.

`values` has the types, `planner` the rules. `net` asks the brokers and does what the planner says.
"""
