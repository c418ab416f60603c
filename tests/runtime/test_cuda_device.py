"""Finding a GPU: one clear sentence for whatever is missing."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda import device as cuda_device
from jitdelegate.runtime.cuda.device import Device, find_device, runs
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.targets.cuda.target import open_library
from tests.gpu.stub.library import NO_DEVICE, Library
from tests.gpu.stub.programs import library


def test_a_device_is_found_with_its_name_and_architecture() -> None:
    device = Device(Driver(library(devices=3)), 2)
    assert (device.ordinal, device.name, device.capability, device.architecture) == (2, "Stub 9000", (9, 0), "sm_90")


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "kind"),
    [
        ((9, 0), 132, "sm_90:132"),
        ((9, 0), 114, "sm_90:114"),
        ((9, 0), 120, "sm_90:114"),
        ((9, 0), 200, "sm_90:132"),
        ((9, 0), 16, "sm_90:16"),
        ((9, 0), 2, "sm_90:16"),
        ((8, 9), 128, "sm_89:128"),
        ((8, 6), 10, "sm_86:10"),
        ((8, 6), 84, "sm_86:82"),
        ((8, 8), 84, "sm_86:82"),
    ],
)
def test_a_device_is_of_a_kind_with_no_more_multiprocessors_than_it_has(
    capability: tuple[int, int], multiprocessors: int, kind: str
) -> None:
    device = Device(Driver(library(capability=capability, multiprocessors=multiprocessors)), 0)
    assert (device.multiprocessors, device.kind) == (multiprocessors, kind)


@pytest.mark.parametrize(("version", "toolkit"), [(12040, 0), (12040, 12), (12000, 12), (13000, 12), (13000, 13)])
def test_a_driver_takes_code_of_its_own_cuda_and_of_older_ones(version: int, toolkit: int) -> None:
    Device(Driver(library(version=version)), 0).check("sm_90", toolkit)


def test_code_of_a_newer_cuda_than_the_drivers_is_refused_with_what_helps() -> None:
    device = Device(Driver(library(version=12080)), 0)
    with pytest.raises(
        DeviceError,
        match=r"compiled by CUDA 13, which needs a driver for CUDA 13\.0 or later, but this one speaks CUDA 12\.8: "
        r"update the driver, or install jitdelegate's extra cuda12",
    ):
        device.check("sm_90", 13)


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitdelegate.runtime.cuda.library.LIBRARY", "libnonesuch.so.1")
    with pytest.raises(DeviceError, match=r"no NVIDIA driver was found: libnonesuch\.so\.1"):
        open_library()


def test_a_driver_that_lacks_a_function_is_too_old() -> None:
    with pytest.raises(DeviceError, match=r"the NVIDIA driver is too old: .*cuInit"):
        find_device(ctypes.CDLL(None))


def test_a_driver_of_an_older_cuda_is_told_with_what_is_needed() -> None:
    with pytest.raises(DeviceError, match=r"too old: it speaks CUDA 11\.8, expected at least 12\.0"):
        Driver(library(version=11080))


def test_no_device_is_told_in_the_drivers_words() -> None:
    with pytest.raises(DeviceError, match=r"cuInit failed with CUDA_ERROR_NO_DEVICE \(100\): no CUDA-capable device"):
        Driver(library(devices=0))


def test_a_device_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(DeviceError, match="device is 2, but there are devices 0 to 1"):
        Device(Driver(library(devices=2)), 2)


def _machine(monkeypatch: pytest.MonkeyPatch, *names: str) -> Library:
    """A driver whose devices have these names."""
    driver = library(devices=len(names))

    def answer(buffer: Any, length: int, device: int) -> int:
        buffer.value = names[device].encode()
        return 0

    monkeypatch.setattr(driver, "cuDeviceGetName", answer)
    monkeypatch.setattr(cuda_device, "declare", lambda library: None)  # a stub needs no prototypes
    return driver


@pytest.mark.parametrize(
    ("wanted", "ordinal"), [(0, 0), (2, 2), ("H100", 1), ("h100 80", 2), ("NVIDIA A100-PCIE", 0), ("nvidia", 0)]
)
def test_a_device_is_found_by_number_or_by_a_part_of_its_name(
    wanted: int | str, ordinal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3")
    device = find_device(_machine(monkeypatch, *names), wanted)
    assert (device.ordinal, device.name) == (ordinal, names[ordinal])


def test_a_name_that_no_device_has_is_told_with_the_names_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _machine(monkeypatch, "NVIDIA A100", "NVIDIA L4")
    with pytest.raises(DeviceError, match="device is 'H100', but the devices are named 'NVIDIA A100', 'NVIDIA L4'"):
        find_device(driver, "H100")
    driver.devices = 0
    monkeypatch.setattr(driver, "cuInit", lambda flags: 0)  # the devices went after it
    with pytest.raises(DeviceError, match="device is 'H100', but there is no CUDA device"):
        find_device(driver, "H100")


def test_no_visible_device_is_told(driver: Library) -> None:
    started = Driver(driver)
    driver.devices = 0
    with pytest.raises(DeviceError, match="device is 0, but there is no CUDA device"):
        Device(started, 0)


def test_an_error_without_a_name_is_told_by_its_number(driver: Library) -> None:
    driver.fail("cuInit", NO_DEVICE)
    driver.fail("cuGetErrorName", NO_DEVICE)
    driver.fail("cuGetErrorString", NO_DEVICE)
    with pytest.raises(DeviceError, match=r"cuInit failed with an unknown error \(100\): no text for it"):
        Driver(driver)


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((7, 5), "sm_75"),
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 8), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90"),
        ((10, 0), "sm_100"),
        ((10, 3), "sm_100"),
        ((7, 2), "sm_72"),
        ((8, 7), "sm_87"),
        ((11, 0), "sm_110"),
        ((12, 1), "sm_121"),
    ],
)
def test_a_device_takes_the_best_code_that_runs_on_it(capability: tuple[int, int], architecture: str) -> None:
    assert Device(Driver(library(capability=capability)), 0).architecture == architecture
    assert runs(architecture, capability)


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [((7, 3), "compute_72"), ((10, 1), "compute_100"), ((11, 1), "compute_110"), ((13, 0), "compute_121")],
)
def test_a_device_that_no_binary_runs_on_takes_ptx(capability: tuple[int, int], architecture: str) -> None:
    device = Device(Driver(library(capability=capability, version=12040)), 0)
    assert device.architecture == architecture and device.kind.startswith(f"{architecture}:")
    device.check(architecture, 13)  # PTX, whatever the compilers' CUDA is


def test_a_device_that_no_code_runs_on_is_told() -> None:
    with pytest.raises(DeviceError, match="Stub 9000 is sm_70, but code is compiled for sm_72 and later only"):
        Device(Driver(library(capability=(7, 0))), 0)


@pytest.mark.parametrize(
    ("features", "capability", "expected"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_80", (8, 7), False),
        ("sm_87", (8, 7), True),
        ("sm_87", (8, 9), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_", (9, 0), False),
        ("", (9, 0), False),
        ("90", (9, 0), False),
        ("sm_9x", (9, 0), False),
        ("sm_9000", (9, 0), False),
        ("compute_90", (9, 0), True),
        ("compute_90", (12, 1), True),
        ("compute_90", (8, 9), False),
        ("compute_9", (9, 0), False),
    ],
)
def test_binaries_run_on_the_same_major_number_and_higher_minor_ones(
    features: str, capability: tuple[int, int], expected: bool
) -> None:
    assert runs(features, capability) is expected
