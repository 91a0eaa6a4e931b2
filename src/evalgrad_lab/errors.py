"""Errors that the user can repair, reported in one sentence without a traceback."""


class UserError(Exception):
    """The message names the file or option and how to repair it; the command exits with code 2."""
