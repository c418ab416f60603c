"""Keys of signers, made for a test."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


class Keys(NamedTuple):
    """The files of one key."""

    private: str
    public: str


def write_keys(folder: Path, name: str, seed: int, *, openssh: bool = False, passphrase: str = "") -> Keys:
    """The files of the key that follows from a seed, below 256."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    private, public = folder / f"{name}.private", folder / f"{name}.public"
    layout = PrivateFormat.OpenSSH if openssh else PrivateFormat.PKCS8
    protection = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    private.write_bytes(key.private_bytes(Encoding.PEM, layout, protection))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        if openssh
        else key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return Keys(str(private), str(public))
