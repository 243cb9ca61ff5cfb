"""The simulator: production machines in a virtual world, watched by checkers.

    from holdfast.sim.config import MemberPlan, WorldConfig
    from holdfast.sim.world import World
    result = World(WorldConfig(members=(MemberPlan(name="c0"), MemberPlan(name="c1")))).run()
    result.records, result.violations

`clock` and `network` are the physics, `broker`, `member`, `application` and `offsets` the actors, `world` runs them,
`checkers` hold the invariants, `timeline` reads who processed what out of the trace, `scene` draws it, `scenarios` and
`grounds` are worlds written by hand, `swarm` draws them at random, `mutations` break the machines on purpose.

It imports what it runs (`group`, `assign`) and never the other way round. Nothing here reads a real clock, opens a
socket or draws from an unseeded source, except the swarm's stop-watch and its worker processes.
"""
