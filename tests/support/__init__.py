"""What tests of several packages and bench/ share; bench/ imports nothing else of the tests."""
