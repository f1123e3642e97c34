"""Signatures of bundles by OpenSSF Model Signing; needs the extra `signing`."""
