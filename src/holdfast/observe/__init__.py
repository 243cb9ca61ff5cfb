"""Looking at groups from outside: snapshots in; rows, plans, findings and metrics out.

Pure: no socket, no clock, no printing. `net.group_snapshots` reads a cluster into the values of `snapshot`, the
commands show what is made of them here. Time is an argument, in milliseconds.
"""
