from collections.abc import Iterator

class Var:
    full_name: str

class Waveform:
    def __init__(self, path: str) -> None: ...
    def all_vars(self) -> Iterator[Var]: ...
