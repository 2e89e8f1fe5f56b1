"""Looking at what poot makes of a function, and at how long it takes."""

from poot.inspection._explain import Explanation, explain

__all__ = ["Explanation", "explain"]
