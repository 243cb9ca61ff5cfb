"""Live groups on the page: another source of the same stories.

    telling    what was seen of a group (looks at it, records of its members and its coordinator) to the story's records
    standing   … how the group stands then: who is in it, who has which partition
    lives      … whose member id that is, and whether its process lives
    lags       measured lag and the producer's rate
    chronicle  everything seen of one group in the last minutes, as a story
    tails      trace files while they grow
    watch      looks at one group for as long as somebody looks at the page
    hub        all watched groups, and how many may look
    feed       server-sent events for one viewer
    answers    what the page's server answers about live groups
    demo       a group of our own whose members obey the page's buttons (`demo_member` is one of them)

Up to `chronicle` everything is pure: time is an argument. Groups are only read; nothing but `demo`
can change one, and that only its own.
"""
