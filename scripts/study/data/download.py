"""The ``url`` source: download a benchmark's files from the CANDLE server, or from a mirror, with pooch."""

import ftplib
import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pooch
import requests

from study.core.errors import StudyError
from study.core.file_kinds import recognize_file
from study.core.files import AnyPath, read_checksum_file, sha256, write_text
from study.core.wording import hide_secrets

CANDLE_SERVER = "ftp.mcs.anl.gov/pub/candle/public/benchmarks"
TIMEOUT_S = 30
FTP_PORT = 21  # pooch ignores the port of an ftp:// address


def fetch_published(
    path: AnyPath, place: str, origin: Mapping[str, Any], checksum_file: AnyPath, expected: Mapping[str, Any]
) -> None:
    """Fetch a file as `fetch` does, from the dataset's server, else from CANDLE's.

    CANDLE's is asked by https; by http, where others can change what arrives, only for a file of known SHA-256.

    Args:
        path: of the file to write.
        place: folder and name of the file on the server.
        origin: the dataset's ``server``, if it names one.
        checksum_file: as for `fetch`.
        expected: what is known of the file, as for `find_difference`.
    """
    if "server" in origin:
        return fetch(path, build_file_url(origin["server"], place), checksum_file, expected)
    try:
        fetch(path, build_file_url(f"https://{CANDLE_SERVER}", place), checksum_file, expected)
    except StudyError as error:
        if "sha256" not in expected:
            raise StudyError(
                f"{error}. It was not asked for by http, since no sha256 of it is known; to take it unverified, give "
                f"server: http://{CANDLE_SERVER}"
            ) from None
        fetch(path, build_file_url(f"http://{CANDLE_SERVER}", place), checksum_file, expected)


def build_file_url(server: str, place: str) -> str:
    """The address of a file below a server's folder; a query, such as a signature, stays last."""
    try:
        parts = urlsplit(server)
    except ValueError as error:  # such as a bracket without its other one
        raise StudyError(f"{hide_secrets(server)} is no address ({error}); correct server in the study") from None
    return parts._replace(path=f"{parts.path.rstrip('/')}/{place}").geturl()


def fetch(path: AnyPath, url: str, checksum_file: AnyPath, expected: Mapping[str, Any] | None = None) -> None:
    """Download ``url`` to ``path``, whole or not at all, with a progress bar.

    The checksum of the first download is kept in ``checksum_file`` (sha256sum's format); every later download is
    checked against it. An interrupted download starts again from the beginning. Raises `StudyError` that names the
    file, the server and what to do. No message has the address's user information or query, which may be secrets.
    expected: what is known of the file, as for `find_difference`.
    """
    safe_url = hide_secrets(url)
    path, checksum_file = Path(path), Path(checksum_file)
    first_checksum = read_checksum_file(checksum_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    pooch.get_logger().setLevel(logging.WARNING)  # it writes the address, and advice that does not apply to users
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
        try:
            downloader = _make_downloader(url, "sha256" in (expected or {}))
            arrived = pooch.retrieve(url, known_hash=None, fname=path.name, path=folder, downloader=downloader)
        except (requests.RequestException, ftplib.Error, OSError, EOFError, ValueError) as error:
            print(file=sys.stderr)  # the progress bar does not end its line
            raise StudyError(_describe_failure(path, url, error)) from None
        kind = recognize_file(arrived)
        if kind is not None and kind.is_answer:
            raise StudyError(_describe_failure(path, url, f"the server sent {kind.name} instead of the file"))
        if difference := find_difference(arrived, expected or {}):
            raise StudyError(
                f"{path.name} from {safe_url} has {difference}: give the right value, another server or your own file"
            )
        checksum = sha256(arrived)
        if first_checksum is not None and checksum != first_checksum:
            raise StudyError(
                f"{path.name} from {safe_url} has SHA-256 {checksum}, but the first download had {first_checksum} "
                f"({checksum_file}). The file on the server changed or the transfer was damaged: try again; "
                "if the change is wanted, delete the checksum file"
            )
        os.replace(arrived, path)
    if first_checksum is None:
        write_text(checksum_file, f"{checksum}  {path.name}\n")
    checked = "as declared" if "sha256" in (expected or {}) else "not verified: no sha256 of it is declared"
    print(f"{path.name} from {safe_url}: SHA-256 {checksum}, {checked}")


def find_difference(path: AnyPath, expected: Mapping[str, Any]) -> str | None:
    """How a file differs from what is expected of it, in words; None if it does not.

    expected: ``bytes``, ``md5`` and ``sha256``, each if it is known.
    """
    kinds: dict[str, Callable[[AnyPath], Any]] = {
        "bytes": lambda file: Path(file).stat().st_size, "md5": md5, "sha256": sha256
    }  # fmt: skip
    for kind, measure in kinds.items():
        if kind in expected and (value := measure(path)) != expected[kind]:
            return f"{kind} {value}, but {expected[kind]} was declared in checksums"
    return None


def md5(path: AnyPath) -> str:
    """Hex MD5 of a file's content; old servers publish nothing better."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _make_downloader(url: str, is_known: bool) -> Any:
    """The downloader of pooch for an address. is_known: True if the SHA-256 is declared, so redirects cannot harm."""
    if url.startswith("ftp://"):
        return pooch.FTPDownloader(port=FTP_PORT, progressbar=True, timeout=TIMEOUT_S)
    hooks = {} if is_known else {"response": _refuse_leaving_https}
    return pooch.HTTPDownloader(progressbar=True, timeout=TIMEOUT_S, hooks=hooks)


def _refuse_leaving_https(response: requests.Response, **_: Any) -> None:
    """Raise an error if an answer to a request by https redirects to an address without it."""
    to = urljoin(response.url, response.headers.get("location", ""))
    if response.is_redirect and urlsplit(response.url).scheme == "https" != urlsplit(to).scheme:
        raise requests.RequestException(f"it leads on to {to}, without https, and no sha256 of the file is declared")


def _describe_failure(path: Path, url: str, error: Exception | str) -> str:
    """Message of a failed download: file, server, reason and what to do."""
    safe_url = hide_secrets(url)
    server = "/".join(safe_url.split("/")[:3])
    return (
        f"{path.name} cannot be downloaded from {server} ({safe_url}): {hide_secrets(_describe_reason(error))}. "
        "Without that server, give files you have (source: path) "
        "or use synthetic data (source: synthetic) in the study's datasets"
    )


def _describe_reason(error: Exception | str) -> str:
    """The reason of a failed download in words."""
    if isinstance(error, str):
        return error
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    if isinstance(error, requests.Timeout | TimeoutError):
        return f"no answer within {TIMEOUT_S} s"
    return str(error) or type(error).__name__
