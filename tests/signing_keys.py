"""Keys of signers, made for a test."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Keys(NamedTuple):
    """The files of one key."""

    private: str
    public: str


def write_keys(folder: Path, name: str, seed: int, *, openssh: bool = False, passphrase: str = "") -> Keys:
    """The files of the key that follows from a seed, below 256."""
    from cryptography.hazmat.primitives import serialization as forms  # tests that need it are skipped without it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    private, public = folder / f"{name}.private", folder / f"{name}.public"
    layout = forms.PrivateFormat.OpenSSH if openssh else forms.PrivateFormat.PKCS8
    protection = forms.BestAvailableEncryption(passphrase.encode()) if passphrase else forms.NoEncryption()
    private.write_bytes(key.private_bytes(forms.Encoding.PEM, layout, protection))
    known = key.public_key()
    public.write_bytes(
        known.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
        if openssh
        else known.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    )
    return Keys(str(private), str(public))
