"""All errors of the package; the command line catches their base class, `MemoError`."""


class MemoError(Exception):
    """A problem that the user can solve; the message is one complete line."""


class ConfigError(MemoError):
    """An option, or a combination of options, that is not valid."""


class UnknownName(ConfigError):
    """An unknown name; the message lists the choices."""


class InputError(MemoError):
    """An image, array or tensor that cannot be used."""


class ModelError(MemoError):
    """A module that does not behave like a classifier."""


class CheckpointError(MemoError):
    """A weights file that is missing, damaged, unsafe or made for another model."""


class DataError(MemoError):
    """A data set that is missing, damaged or not in the expected format."""


class MissingExtra(MemoError):
    """An optional dependency that is not installed; the message says how to install it."""


class MemoWarning(UserWarning):
    """A warning that a request has no effect, or another effect than expected."""
