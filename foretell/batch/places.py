"""Folders of tables and forecasts, on this machine or in object storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from foretell.batch.errors import BatchError


@dataclass(frozen=True)
class Place:
    """A folder or a file, which may not exist yet.

    Attributes:
        text: Absolute path, or URL.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        with self.naming(""):
            return _open(self.text)

    @property
    def system(self) -> fs.FileSystem:
        """File system of the place."""
        return self._opened[0]

    def path(self, name: str) -> str:
        """The path of a file in the file system; an empty name is the place itself."""
        return f"{self._opened[1]}/{name}" if name else self._opened[1]

    def of(self, name: str) -> str:
        """Name of a file for messages."""
        return f"{self.text}/{name}" if name else self.text

    def files(self, folder: str = "") -> dict[str, fs.FileInfo]:
        """All files below except hidden ones, in the order of their names.

        The name is empty if the place is a file.

        Raises:
            BatchError: the files cannot be listed.
        """
        root = self.path(folder)
        with self.naming(folder):
            if (own := self.system.get_file_info(root)).is_file:
                return {"": own}
            found = self.system.get_file_info(
                fs.FileSelector(root, recursive=True, allow_not_found=True)
            )
        names = {each.path[len(root) + 1 :]: each for each in found if each.is_file}
        return {
            name: names[name]
            for name in sorted(names)
            if not any(part[0] in "._" for part in name.split("/"))
        }

    def read(self, name: str) -> bytes | None:
        """Content of a file; None if it does not exist.

        Raises:
            BatchError: the file cannot be read.
        """
        with self.naming(name):
            try:
                with self.system.open_input_stream(self.path(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    @contextmanager
    def writing(self, name: str) -> Iterator[str]:
        """A path to write to; unless an error is raised, the file is then moved to its name.

        Raises:
            BatchError: the file cannot be written.
        """
        folder, _, own = self.path(name).rpartition("/")
        # Readers skip hidden files; the next run removes those of a killed run at its end.
        hidden = f"{folder}/.{own}.{uuid4().hex[:8]}"
        with self.naming(name):
            self.system.create_dir(folder)
            try:
                yield hidden
                with suppress(FileNotFoundError):
                    # Another run has written the same file, and removed this one.
                    self.system.move(hidden, f"{folder}/{own}")
            except BaseException:
                with suppress(OSError):
                    self.system.delete_file(hidden)
                raise

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically.

        Raises:
            BatchError: the file cannot be written.
        """
        with self.writing(name) as path, self.system.open_output_stream(path) as file:
            file.write(content)

    def write_first(self, name: str, content: bytes) -> None:
        """Write a file unless it exists; in object storage, replace it.

        Raises:
            BatchError: the file cannot be written.
        """
        if not isinstance(self.system, fs.LocalFileSystem):
            self.write(name, content)
            return
        hidden = f".{name}.{uuid4().hex[:8]}"
        self.write(hidden, content)
        try:
            os.link(self.path(hidden), self.path(name))
        except FileExistsError:
            pass
        except OSError:
            # The file system has no links.
            self.write(name, content)
        self.remove(hidden)

    def remove(self, name: str) -> None:
        """Remove a file if it exists.

        Raises:
            BatchError: the file cannot be removed.
        """
        with self.naming(name), suppress(FileNotFoundError):
            self.system.delete_file(self.path(name))

    def tidy(self, folder: str) -> None:
        """Remove unfinished files of a folder."""
        with self.naming(folder):
            selector = fs.FileSelector(self.path(folder), allow_not_found=True)
            for file in self.system.get_file_info(selector):
                if file.base_name.startswith("."):
                    self.system.delete_file(file.path)

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Add the name of a file to errors of Arrow.

        Raises:
            BatchError: Arrow raised an error.
        """
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise BatchError(f"{self.of(name)}: {reason}") from None


def place_of(text: str) -> Place:
    """The place of a path or URL; paths become absolute."""
    return Place(text.rstrip("/") if "://" in text else str(Path(text).absolute()))


def _open(text: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path in it."""
    scheme, is_url, path = text.partition("://")
    if not is_url:
        return fs.LocalFileSystem(), text
    if scheme == "s3":
        variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        given = next(filter(None, map(os.environ.get, variables)), "")
        endpoint = urlsplit(given)
        if given and not endpoint.netloc:
            raise BatchError(
                f"{text}: AWS_ENDPOINT_URL: expected an address such as http://localhost:9000, "
                f"got {given!r}"
            )
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        system = fs.S3FileSystem(
            scheme=endpoint.scheme or "https",
            endpoint_override=endpoint.netloc or None,
            region=region or ("us-east-1" if given else None),
        )
        return system, path
    if scheme == "az":
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise BatchError(f"{text}: AZURE_STORAGE_ACCOUNT_NAME is not set")
        key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
        return fs.AzureFileSystem(account_name=account, account_key=key), path
    if scheme == "gs":
        return fs.GcsFileSystem(), path
    raise BatchError(f"{text}: expected s3://bucket/prefix, gs://… or az://…")
