"""Certificates for tests of TLS."""

import datetime
import ipaddress

import pytest


def make(folder, *, days=1):
  """A CA and one certificate for 127.0.0.1, signed by it.

  Args:
    folder: Gets ca.pem, worker.pem and their keys.
    days: For how long they are valid; a negative number for how long not.
  """
  x509 = pytest.importorskip('cryptography.x509')
  from cryptography.hazmat.primitives import hashes  # pylint: disable=g-import-not-at-top
  from cryptography.hazmat.primitives import serialization  # pylint: disable=g-import-not-at-top
  from cryptography.hazmat.primitives.asymmetric import ec  # pylint: disable=g-import-not-at-top

  now = datetime.datetime.now(datetime.UTC)

  def sign(name, issuer, issuer_key, is_ca):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
      [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)]
    )
    certificate = (
      x509.CertificateBuilder()
      .subject_name(subject)
      .issuer_name(issuer or subject)
      .public_key(key.public_key())
      .serial_number(x509.random_serial_number())
      .not_valid_before(now - datetime.timedelta(days=abs(days) + 1))
      .not_valid_after(now + datetime.timedelta(days=days))
      .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
      .add_extension(
        x509.SubjectAlternativeName(
          [x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
        ),
        critical=False,
      )
      .sign(issuer_key or key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / f'{name}.pem').write_bytes(certificate.public_bytes(pem))
    (folder / f'{name}.key').write_bytes(
      key.private_bytes(
        pem,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
      )
    )
    return subject, key

  subject, key = sign('ca', None, None, True)
  sign('worker', subject, key, False)
