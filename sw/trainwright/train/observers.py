"""Several observers in the place of one."""

from collections.abc import Callable

from trainwright.train.interfaces import Observer


class Observers(Observer):
    """Tells each of several observers of every event, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers


def _of_each(event: str) -> Callable[..., None]:
    def tell(self: Observers, *arguments: object) -> None:
        for observer in self._observers:
            getattr(observer, event)(*arguments)

    return tell


# Every event that there is: one that is new reaches the observers without a line here.
for _event in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _event, _of_each(_event))
