"""What the user can repair: told in one sentence, without a traceback."""


class UserError(Exception):
    """The message names the file or option and the repair; the command ends with code 2."""
