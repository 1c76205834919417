"""One tree of errors; the command line catches its root once."""


class MemoError(Exception):
    """A problem the user can act on: the message is one complete line."""


class ConfigError(MemoError):
    """An option, or a combination of options, that cannot work."""


class UnknownName(ConfigError):
    """A name that no table holds; the message lists the choices."""


class InputError(MemoError):
    """An image, array or tensor that cannot be used as given."""


class ModelError(MemoError):
    """A module that does not behave as a classifier."""


class CheckpointError(MemoError):
    """A weights file that is missing, damaged, unsafe or of another model."""


class DataError(MemoError):
    """A data set that is missing, damaged or not what it should be."""


class MissingExtra(MemoError):
    """An optional dependency that is not installed; the message says how to get it."""


class MemoWarning(UserWarning):
    """Something was asked for that has no effect here."""
