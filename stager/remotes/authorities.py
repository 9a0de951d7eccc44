"""Certificates of authorities that a site trusts besides those of the system."""

import ssl

from shards.errors import RemoteError, printable


def read_authorities(path: str) -> bytes:
    """Read a file of certificates and check that it is one.

    Raises:
        RemoteError: it cannot be read, or holds no certificate.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
        ssl.create_default_context(cadata=text.decode("ascii", "replace"))
    except OSError as error:
        # SSLError is an OSError as well, and its text says what is wrong with the certificate
        reason = error.strerror or str(error)
        raise RemoteError(
            f"the file of certificates {printable(path)} cannot be used: {printable(reason)}; give a PEM file with "
            "--ca-bundle (AWS_CA_BUNDLE)",
            is_transient=False,
        ) from error
    return text


def combine_with_system(authorities: bytes) -> bytes:
    """Give one PEM text of the system's authorities and others, for a client that takes a single file."""
    context = ssl.create_default_context()
    known = context.get_ca_certs(binary_form=True)
    return b"".join(ssl.DER_cert_to_PEM_cert(certificate).encode("ascii") for certificate in known) + authorities
