"""The invariants of a group, one file each; edge-cases in the documentation name them I1 to I14."""

from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.i01_overlap import NoOverlap
from holdfast.sim.checkers.i02_stale_commits import NoStaleCommit
from holdfast.sim.checkers.i03_offsets_forward import OffsetsForward
from holdfast.sim.checkers.i04_delivery import DeliveredAtLeastOnce
from holdfast.sim.checkers.i05_kept import KeptWithoutGap
from holdfast.sim.checkers.i06_callbacks import CallbacksInPairs
from holdfast.sim.checkers.i07_settles import Settles
from holdfast.sim.checkers.i08_replay import ReplayEqualsLive
from holdfast.sim.checkers.i09_generation import GenerationRises
from holdfast.sim.checkers.i10_bounds import Bounded
from holdfast.sim.checkers.i11_spoken_for import SpokenFor
from holdfast.sim.checkers.i12_polls import PollsOrLeaves
from holdfast.sim.checkers.i13_once import DoneOnce
from holdfast.sim.checkers.i14_silence import StandsStillInSilence

CHECKERS: tuple[type[Checker], ...] = (
    NoOverlap,
    NoStaleCommit,
    OffsetsForward,
    DeliveredAtLeastOnce,
    KeptWithoutGap,
    CallbacksInPairs,
    Settles,
    ReplayEqualsLive,
    GenerationRises,
    Bounded,
    SpokenFor,
    PollsOrLeaves,
    DoneOnce,
    StandsStillInSilence,
)

__all__ = ["CHECKERS", "Checker", "Violation", "all_checkers"]


def all_checkers() -> list[Checker]:
    """Fresh ones for one world."""
    return [checker() for checker in CHECKERS]
