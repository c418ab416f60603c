"""A side: one way to run a model, behind the same few methods as every other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jitdelegate.commands.measurement.entry import Entry


class Side:
    """A model that is ready to run.

    Attributes:
        name: one of `sides.NAMES`.
        entry: what is run.
        run: one inference on the inputs that `set_inputs` gave.
    """

    name: str
    entry: Entry
    run: Callable[[], object]

    def set_inputs(self, values: Sequence[np.ndarray]) -> None:
        """Take values for the next runs, in the order of the entry's inputs."""
        raise NotImplementedError

    def outputs(self) -> list[np.ndarray]:
        """Copies of the last run's outputs, in the entry's order."""
        raise NotImplementedError
