"""What goes wrong in a lab, in words for the person who runs it."""

from flock.core.errors import FlockError


class LabError(FlockError):
    """The lab cannot do what was asked; `details` holds what the program concerned had to say."""
