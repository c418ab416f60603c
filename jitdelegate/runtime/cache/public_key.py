"""A signer's public key, which checks statements. Needs the package `cryptography`, of the extra `signed`."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from jitdelegate.errors import CacheError
from jitdelegate.runtime.cache.directory import close_quietly
from jitdelegate.runtime.cache.statements import Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MISSING = "signatures need the package cryptography, which is not installed: the extra 'signed'"
_LARGEST_FILE = 1 << 16


class PublicKey:
    """An Ed25519 key.

    Attributes:
        key_id: SHA-256 of the DER of its SubjectPublicKeyInfo, 64 hex digits.
    """

    def __init__(self, key: Ed25519PublicKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._key = key
        self.key_id = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    def check(self, content: bytes, signature: Signature) -> None:
        """
        Raises:
            CacheError: the signature is another key's, or not one of this content.
        """
        from cryptography.exceptions import InvalidSignature

        if signature.key_id != self.key_id:
            raise CacheError(f"it is signed by the key {signature.key_id}, expected {self.key_id}")
        try:
            self._key.verify(signature.value, content)
        except InvalidSignature as error:
            raise CacheError(f"its signature by the key {self.key_id} does not fit it") from error


def read_public_key(path: str) -> PublicKey:
    """The key in a PEM file (SubjectPublicKeyInfo), or in one of OpenSSH.

    Raises:
        CacheError: there is no such key in it, or `cryptography` is missing.
        OSError: the file cannot be read.
    """
    content = key_content(path)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
    except ImportError as error:
        raise CacheError(MISSING) from error
    if b"PRIVATE KEY" in content:
        raise CacheError(f"{path} holds a private key, expected the public one of the signer")
    try:
        key = load_ssh_public_key(content) if content.startswith(b"ssh-") else load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CacheError(f"{path} holds no public key that can be read, expected PEM or OpenSSH's format") from error
    if not isinstance(key, Ed25519PublicKey):
        raise CacheError(f"{path} holds a {type(key).__name__}, expected a key of Ed25519")
    return PublicKey(key)


def key_content(path: str) -> bytes:
    """The bytes of a key's file.

    Raises:
        CacheError: it is too large for a key.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, _LARGEST_FILE + 1)
    finally:
        close_quietly(descriptor)
    if len(content) > _LARGEST_FILE:
        raise CacheError(f"{path} is too large for a key")
    return content
