"""Looking at what poot makes of a function, and at how long it takes."""

from poot.inspection._draw import Drawing, draw
from poot.inspection._explain import Explanation, explain
from poot.inspection._profile import Profile, ProfileRow, profile
from poot.inspection._tune import TunedSchedule, Tuning, tune

__all__ = [
    "Drawing",
    "Explanation",
    "Profile",
    "ProfileRow",
    "TunedSchedule",
    "Tuning",
    "draw",
    "explain",
    "profile",
    "tune",
]
