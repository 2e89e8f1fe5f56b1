"""Looking at what poot makes of a function, and at how long it takes."""

from poot.inspection._draw import Drawing, draw
from poot.inspection._explain import Explanation, explain
from poot.inspection._profile import Profile, ProfileRow, profile

__all__ = [
    "Drawing",
    "Explanation",
    "Profile",
    "ProfileRow",
    "draw",
    "explain",
    "profile",
]
