# The one module with types of its own: members of our enumerations are worth checking.
import enum
from typing import Any

def __getattr__(name: str) -> Any: ...

class Enum(enum.Enum):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntEnum(enum.IntEnum):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class Flag(enum.Flag):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntFlag(enum.IntFlag):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...
