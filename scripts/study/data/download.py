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
from study.core.file_kinds import kind_of
from study.core.files import AnyPath, noted_checksum, sha256, write_text
from study.core.wording import hide_secrets

CANDLE_SERVER = "ftp.mcs.anl.gov/pub/candle/public/benchmarks"
TIMEOUT_S = 30
FTP_PORT = 21  # pooch ignores the port of an ftp:// address


def fetch_published(
    path: AnyPath, place: str, origin: Mapping[str, Any], checksum_file: AnyPath, expected: Mapping[str, Any]
) -> None:
    """As `fetch`, from the server that a dataset names, else from CANDLE's.

    CANDLE's is asked by https; by http, where others can change what arrives, only for a file of known SHA-256.

    Args:
        path: of the file to write.
        place: folder and name of the file on the server.
        origin: the dataset's ``server``, if it names one.
        checksum_file: as for `fetch`.
        expected: what is known of the file, as for `difference`.
    """
    if "server" in origin:
        return fetch(path, file_url(origin["server"], place), checksum_file, expected)
    try:
        fetch(path, file_url(f"https://{CANDLE_SERVER}", place), checksum_file, expected)
    except StudyError as error:
        if "sha256" not in expected:
            raise StudyError(
                f"{error}. It was not asked for by http, since no sha256 of it is known; to take it unverified, give "
                f"server: http://{CANDLE_SERVER}"
            ) from None
        fetch(path, file_url(f"http://{CANDLE_SERVER}", place), checksum_file, expected)


def file_url(server: str, place: str) -> str:
    """The address of a file below a server's folder, whose query, such as a signature, stays the last."""
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
    expected: what is known of the file, as for `difference`.
    """
    shown = hide_secrets(url)
    path, checksum_file = Path(path), Path(checksum_file)
    known = noted_checksum(checksum_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    pooch.get_logger().setLevel(logging.WARNING)  # it writes the address, and advice that does not apply to users
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
        try:
            downloader = _downloader(url, "sha256" in (expected or {}))
            arrived = pooch.retrieve(url, known_hash=None, fname=path.name, path=folder, downloader=downloader)
        except (requests.RequestException, ftplib.Error, OSError, EOFError, ValueError) as error:
            print(file=sys.stderr)  # the progress bar does not end its line
            raise StudyError(_failure(path, url, error)) from None
        kind = kind_of(arrived)
        if kind is not None and kind.is_answer:
            raise StudyError(_failure(path, url, f"the server sent {kind.name} instead of the file"))
        if unlike := difference(arrived, expected or {}):
            raise StudyError(
                f"{path.name} from {shown} has {unlike}: give the right value, another server or your own file"
            )
        found = sha256(arrived)
        if known is not None and found != known:
            raise StudyError(
                f"{path.name} from {shown} has SHA-256 {found}, but the first download had {known} ({checksum_file}). "
                "The file on the server changed or the transfer was damaged: try again; "
                "if the change is wanted, delete the checksum file"
            )
        os.replace(arrived, path)
    if known is None:
        write_text(checksum_file, f"{found}  {path.name}\n")
    checked = "as declared" if "sha256" in (expected or {}) else "not verified: no sha256 of it is declared"
    print(f"{path.name} from {shown}: SHA-256 {found}, {checked}")


def difference(path: AnyPath, expected: Mapping[str, Any]) -> str | None:
    """How a file differs from what is known of it, in words, or None.

    expected: ``bytes``, ``md5`` and ``sha256``, each if it is known.
    """
    kinds: dict[str, Callable[[AnyPath], Any]] = {
        "bytes": lambda file: Path(file).stat().st_size, "md5": md5, "sha256": sha256
    }  # fmt: skip
    for kind, of in kinds.items():
        if kind in expected and (found := of(path)) != expected[kind]:
            return f"{kind} {found}, but {expected[kind]} was declared in checksums"
    return None


def md5(path: AnyPath) -> str:
    """The MD5 of a file: old servers publish nothing better."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _downloader(url: str, is_known: bool) -> Any:
    """is_known: whether the file's SHA-256 is declared, so that it does not matter who can change what arrives."""
    if url.startswith("ftp://"):
        return pooch.FTPDownloader(port=FTP_PORT, progressbar=True, timeout=TIMEOUT_S)
    hooks = {} if is_known else {"response": _refuse_leaving_https}
    return pooch.HTTPDownloader(progressbar=True, timeout=TIMEOUT_S, hooks=hooks)


def _refuse_leaving_https(response: requests.Response, **_: Any) -> None:
    """Called for each answer; raises where a server that was asked by https leads on to an address without it."""
    to = urljoin(response.url, response.headers.get("location", ""))
    if response.is_redirect and urlsplit(response.url).scheme == "https" != urlsplit(to).scheme:
        raise requests.RequestException(f"it leads on to {to}, without https, and no sha256 of the file is declared")


def _failure(path: Path, url: str, error: Exception | str) -> str:
    shown = hide_secrets(url)
    server = "/".join(shown.split("/")[:3])
    return (
        f"{path.name} cannot be downloaded from {server} ({shown}): {hide_secrets(_reason(error))}. "
        "Without that server, give files you have (source: path) "
        "or use synthetic data (source: synthetic) in the study's datasets"
    )


def _reason(error: Exception | str) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    if isinstance(error, requests.Timeout | TimeoutError):
        return f"no answer within {TIMEOUT_S} s"
    return str(error) or type(error).__name__
