"""Kind of an error: the user can correct it."""


class UserError(Exception):
    """Error that the command line reports in one line, without a traceback; a second base."""
