"""Workers of Dask and of Ray. Both begin a job again elsewhere whose worker goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from jitdelegate.commands.fleet.jobs import TRIES, Workers
from jitdelegate.errors import JitDelegateError

LOCAL = "local"
"""In place of an address: a cluster of this machine's CPUs, for as long as the command runs."""
_LEAST_ROOM = 8
"""Jobs that wait even where there are no workers yet, so that a cluster that adapts to its load gets some."""


class ClusterError(JitDelegateError):
    """There is no such cluster, or its package is not installed."""


@contextmanager
def dask_workers(address: str) -> Iterator[Workers]:
    """The workers of a Dask scheduler.

    Args:
        address: as "tcp://10.0.0.1:8786", or LOCAL.
    Raises:
        ClusterError: Dask is not installed, or there is no scheduler.
    """
    distributed = _package("distributed", "'dask[distributed]'")
    # it warns of large arguments, which jobs have: their models' bytes
    with import_module("dask").config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        try:
            is_local = address == LOCAL
            client = distributed.Client(**_LOCAL_CLUSTER) if is_local else distributed.Client(address)
        except (OSError, ValueError) as error:
            raise ClusterError(f"there is no Dask scheduler at {address!r}: {error}") from error
        with client:
            yield _Dask(client)


_LOCAL_CLUSTER = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}


class _Dask:
    """The scheduler begins jobs again of workers that are killed, as often as its `allowed-failures` says."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(retries=TRIES - 1)

    @property
    def room(self) -> int:
        threads: int = sum(self._client.nthreads().values())
        return max(2 * threads, _LEAST_ROOM)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(function, *arguments)
        return future


@contextmanager
def ray_workers(address: str) -> Iterator[Workers]:
    """The workers of a Ray cluster.

    Args:
        address: as "10.0.0.1:6379", "ray://10.0.0.1:10001" or "auto"; "" for that of RAY_ADDRESS, or a cluster of this
            machine's CPUs for as long as the command runs.
    Raises:
        ClusterError: Ray is not installed, or there is no cluster.
    """
    ray = _package("ray", "ray")
    try:
        ray.init(address or None, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(f"there is no Ray cluster at {address!r}: {error}") from error
    try:
        yield _Ray(ray)
    finally:
        ray.shutdown()


class _Ray:
    def __init__(self, ray: Any) -> None:
        self._ray = ray

    @property
    def room(self) -> int:
        return max(2 * int(self._ray.cluster_resources().get("CPU", 0)), _LEAST_ROOM)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        remote = self._ray.remote(max_retries=TRIES - 1, retry_exceptions=True)(function)
        future: Future[Any] = remote.remote(*arguments).future()
        return future


def _package(name: str, install: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ClusterError(f"the package {name} is not installed: pip install {install}") from error
