"""Live groups on the page: another source of the same stories.

    telling    turns evidence (looks at the group, records of its members and its coordinator) into a story's records
    standing   … the group's current state: who is in it, who has which partition
    lives      … which process a member id belongs to, and whether that process lives
    lags       measured lag and the producer's rate
    chronicle  everything seen of one group in the last minutes, as a story
    tails      growing trace files
    watch      watches one group for as long as somebody has its page open
    hub        all watched groups, and the limits
    feed       server-sent events for one viewer
    answers    the server's answers about live groups
    demo       a group of our own whose members obey the page's buttons (`demo_member` is one of them)

Up to `chronicle` everything is pure: time is an argument. Groups are only read; only `demo` can change one, its own.
"""
