"""Looking at what poot makes of a function, and at how long it takes."""

from poot.inspection._explain import Explanation, explain
from poot.inspection._profile import Profile, ProfileRow, profile

__all__ = ["Explanation", "Profile", "ProfileRow", "explain", "profile"]
