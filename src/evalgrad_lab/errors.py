"""What the user can repair: told in one sentence, without a traceback."""


class UserError(Exception):
    """Bad data or options: the message names the file or option and the repair. The command prints
    it and exits with code 2.
    """
