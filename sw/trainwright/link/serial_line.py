"""A serial port of this computer as a ``Line``."""

from trainwright.accelerator import AcceleratorError
from trainwright.link.host import LinkError
from trainwright.support.errors import reason_of

DEFAULT_BAUD = 3_000_000
"""Most bits a second of the FT231X on a ULX3S."""


class SerialLine:
    """``port`` at ``baud``. Raises ``LinkError`` where it cannot be opened or goes away."""

    def __init__(self, port: str, *, baud: int = DEFAULT_BAUD):
        try:
            import serial
        except ModuleNotFoundError as error:
            raise AcceleratorError(
                "a board is reached with pyserial: pip install 'trainwright[boards]'"
            ) from error
        self.name = port
        self.baud = float(baud)
        self._failure: type[Exception] = serial.SerialException
        self._open = lambda: serial.Serial(
            port, baud, timeout=0, write_timeout=10, exclusive=True
        )  # fmt: skip
        try:
            self._serial = self._open()
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            raise LinkError(
                f"cannot open {port}: {reason}; name the board's port as in serial:/dev/ttyUSB0"
            ) from error

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._serial.write(data)
        except (self._failure, OSError) as error:
            raise self._gone(error) from error

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come, at least one unless ``seconds`` pass without any."""
        try:
            self._serial.timeout = seconds
            first = self._serial.read(1)
            return first + self._serial.read(self._serial.in_waiting) if first else b""
        except (self._failure, OSError) as error:
            raise self._gone(error) from error

    def drain(self) -> None:
        """Forget what has come."""
        self._serial.reset_input_buffer()

    def reopen(self) -> None:
        """Open the port again: it may have gone and come back."""
        self._serial.close()
        try:
            self._serial = self._open()
        except (self._failure, OSError) as error:
            raise self._gone(error) from error

    def close(self) -> None:
        """Close the port; idempotent."""
        self._serial.close()

    def _gone(self, error: Exception) -> LinkError:
        return LinkError(f"the serial port {self.name} went away ({error}): check the cable")
