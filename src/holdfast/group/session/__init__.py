"""The rules between the group's machine and an application, for everybody who drives a member.

`Consumer`, `AsyncConsumer`, the Spark source and the simulator read these rules and perform what they say: `steps` what
is done around each call of a round, `closing` how a close ends, `progress` what is due to be committed. Whether the
application may process what it owns is the machine's to say (`member.may_process`).

Pure: time is an argument, what is to be done is a value, and nothing here waits, reads or commits.
"""
