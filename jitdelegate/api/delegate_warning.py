"""Announces operators on LiteRT, once per model, as a warning and through callbacks."""

from __future__ import annotations

from jitdelegate.runtime.cache.key import MODEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.engine.delegate_message import DelegateMessage
    from jitdelegate.engine.executable import Executable

_announced: set[str] = set()
_callbacks: list[Callable[[DelegateMessage], object]] = []


def on_message(callback: Callable[[DelegateMessage], object]) -> Callable[[], None]:
    """Call `callback` with a message for each model, opened from now on, that has operators on LiteRT.

    `on_message(lambda message: logging.getLogger("jitdelegate").warning(message.text))` logs them. Exceptions of the
    callback reach the caller who opens the model.

    Returns:
        A function that removes the callback.
    """
    _callbacks.append(callback)
    return lambda: _callbacks.remove(callback) if callback in _callbacks else None


def announce(executable: Executable) -> None:
    """Announce the operators on LiteRT, once per model, subgraph and process."""
    name = f"{executable.key.part(MODEL)} {executable.subgraph}"
    message = executable.message()
    if not message.remaining or name in _announced:
        return
    _announced.add(name)
    for callback in tuple(_callbacks):  # one of them may remove itself
        callback(message)
    from jitdelegate.base.user_warning import warn_user
    from jitdelegate.errors import DelegateWarning

    warn_user(f"{message.model}: {message.text}", DelegateWarning)
