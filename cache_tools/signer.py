"""A signer's private key. Needs the package `cryptography`, of the extra `signed`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.public_key import MISSING, PublicKey, key_content
from jitdelegate.runtime.cache.statements import Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE = "JITDELEGATE_KEY_PASSPHRASE"
"""The environment variable with the passphrase of the key; an argument would be seen by other users."""


class Signer:
    """An Ed25519 key.

    Attributes:
        key_id: of its public key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = PublicKey(key.public_key()).key_id

    def sign(self, content: bytes) -> Signature:
        """The signature of these bytes; equal bytes have equal ones."""
        return Signature(self.key_id, self._key.sign(content))


def read_signer(path: str) -> Signer:
    """The key in a PEM file (PKCS8), or in one of OpenSSH; a passphrase comes from the environment.

    Raises:
        CacheError: there is no such key in it, the passphrase is missing or wrong, or `cryptography` is missing.
        OSError: the file cannot be read.
    """
    content = key_content(path)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
    except ImportError as error:
        raise CacheError(MISSING) from error
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in content else load_pem_private_key
    phrase = os.environ.get(PASSPHRASE, "").encode() or None
    try:
        try:
            key = load(content, phrase)
        except TypeError as error:
            if phrase is None:
                raise CacheError(f"{path} needs a passphrase; set {PASSPHRASE}") from error
            key = load(content, None)  # the passphrase is that of another key
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        words = f"that {PASSPHRASE} opens" if phrase else "that can be read"
        raise CacheError(f"{path} holds no private key {words}, expected PEM or OpenSSH's format") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CacheError(f"{path} holds a {type(key).__name__}, expected a key of Ed25519")
    return Signer(key)
