"""Downloads from a server on this machine: whole, checked from the second time on, and clear when they fail."""

import contextlib
import functools
import hashlib
import http.server
import io
import re
import threading
import time
from pathlib import Path

import pytest
import requests
from examples import STUDY, define

from study import plan
from study.core import validation
from study.core.errors import StudyError
from study.core.files import sha256
from study.data import download
from study.experiment import expansion, schemas

CONTENT = b"0,1.5\n1,2.5\n" * 5000
SECRET = "CANARY"
MD5, SHA256 = (hashlib.new(kind, CONTENT).hexdigest() for kind in ("md5", "sha256"))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files; /cut stops in the middle, /page is an error page, /slow never answers, /moved redirects."""

    def do_GET(self):
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
        elif self.path == "/page":
            self.send_error(503, "Service Unavailable")
        elif self.path == "/slow":
            time.sleep(600)  # its thread ends with the process
        elif self.path == "/portal":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"\n<!DOCTYPE html><html><body>Please log in</body></html>")
        elif self.path.startswith("/outwards"):  # to a place that the address does not name, with a key of its own
            self.send_response(302)
            self.send_header("Location", "/none.csv?X-Amz-Signature=CANARY")
            self.end_headers()
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/nt_train2.csv")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def http_server(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "nt_train2.csv").write_bytes(CONTENT)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(served)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", served
    server.shutdown()
    server.server_close()


@pytest.fixture
def ftp_server(tmp_path, monkeypatch):
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    served = tmp_path / "ftp"
    served.mkdir()
    (served / "nt_train2.csv").write_bytes(CONTENT)
    authorizer = DummyAuthorizer()
    authorizer.add_anonymous(str(served))
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "permit_foreign_addresses": True})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(download, "FTP_PORT", server.address[1])
    yield "ftp://127.0.0.1"
    with contextlib.suppress(Exception):
        server.close_all()


@pytest.fixture
def fetch(tmp_path):
    def fetch(url):
        download.fetch(tmp_path / "data" / "train.csv", url, tmp_path / "checksums" / "train.sha256")

    return fetch


@pytest.mark.parametrize("path", ["nt_train2.csv", "moved"])
def test_http_also_with_a_redirect(http_server, fetch, tmp_path, path):
    fetch(f"{http_server[0]}/{path}")
    assert (tmp_path / "data" / "train.csv").read_bytes() == CONTENT
    kept = (tmp_path / "checksums" / "train.sha256").read_text()
    assert kept == f"{sha256(tmp_path / 'data' / 'train.csv')}  train.csv\n"


def test_ftp(ftp_server, fetch, tmp_path):
    fetch(f"{ftp_server}/nt_train2.csv")
    assert (tmp_path / "data" / "train.csv").read_bytes() == CONTENT


@pytest.mark.parametrize("known", [{}, {"bytes": len(CONTENT)}, {"sha256": SHA256}], ids=["none", "bytes", "sha256"])
@pytest.mark.parametrize("start", ["https://a/f", "https://b/f", "http://b/f"])
def test_only_a_known_file_is_taken_where_https_leads_on_to_http(tmp_path, monkeypatch, start, known):
    leads_on = {"https://a/f": "https://b/f", "https://b/f": f"http://c/f?{SECRET}", "http://b/f": "http://c/f"}

    def send(_, request, **__):
        answer = requests.Response()
        to = leads_on.get(request.url)
        answer.url, answer.request, answer.status_code = request.url, request, 302 if to else 200
        answer.headers.update({"location": to} if to else {})
        answer.raw = io.BytesIO(b"" if to else CONTENT)
        return answer

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    target = tmp_path / "train.csv"
    if start == "http://b/f" or "sha256" in known:
        download.fetch(target, start, tmp_path / "noted", known)
        assert target.read_bytes() == CONTENT
        return
    with pytest.raises(StudyError, match=r"leads on to http://c/f, without https, and no sha256") as error:
        download.fetch(target, start, tmp_path / "noted", known)
    assert SECRET not in str(error.value) and not target.exists()


def test_a_file_that_changed_since_the_first_download_is_refused(http_server, fetch, tmp_path):
    url, served = http_server
    fetch(f"{url}/nt_train2.csv")
    (tmp_path / "data" / "train.csv").unlink()
    (served / "nt_train2.csv").write_bytes(CONTENT + b"1,1.0\n")
    with pytest.raises(StudyError, match="has SHA-256 .* but the first download had"):
        fetch(f"{url}/nt_train2.csv")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/cut", "1000 bytes read"),
        ("/page", "503"),
        ("/none.csv", "404"),
        ("/slow", "no answer within"),
        ("/portal", "a web page or XML file instead of the file"),
    ],
)
def test_failures_leave_nothing_and_name_the_way_out(http_server, fetch, tmp_path, monkeypatch, path, words):
    monkeypatch.setattr(download, "TIMEOUT_S", 1)
    with pytest.raises(StudyError) as error:
        fetch(f"{http_server[0]}{path}")
    for word in ("train.csv", http_server[0], words, "source: path", "source: synthetic"):
        assert word in str(error.value)
    assert list((tmp_path / "data").iterdir()) == []
    assert not (tmp_path / "checksums" / "train.sha256").exists()


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"bytes": 7}, f"bytes {len(CONTENT)}, but 7 was declared in checksums"),
        ({"md5": "0" * 32}, f"md5 {MD5}, but {'0' * 32} was declared"),
        ({"bytes": len(CONTENT), "sha256": "0" * 64}, f"sha256 {SHA256}, but {'0' * 64} was declared"),
    ],
)
def test_a_file_that_is_not_the_known_one_is_refused(http_server, tmp_path, known, words):
    target, noted = tmp_path / "data" / "train.csv", tmp_path / "train.sha256"
    with pytest.raises(StudyError, match=rf"^train.csv from {http_server[0]}/nt_train2.csv has {words}"):
        download.fetch(target, f"{http_server[0]}/nt_train2.csv", noted, known)
    assert not target.exists()
    assert not noted.exists()


def test_the_known_file_is_taken(http_server, tmp_path):
    target = tmp_path / "data" / "train.csv"
    known = {"bytes": len(CONTENT), "md5": MD5, "sha256": SHA256}
    download.fetch(target, f"{http_server[0]}/nt_train2.csv", tmp_path / "train.sha256", known)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "how", ["{0}:x{0}@{1}/{2}", "{0}@{1}/{2}", "{1}/{2}?token={0}", "{1}/{2}?a=b&X-Amz-Signature={0}#{0}"]
)
@pytest.mark.parametrize(
    ("path", "known"),
    [("nt_train2.csv", {}), ("nt_train2.csv", {"bytes": 1}), ("none.csv", {}), ("portal", {}), ("outwards", {})],
)
def test_secrets_in_an_address_are_in_no_message(http_server, tmp_path, capfd, how, path, known):
    url, noted = "http://" + how.format(SECRET, http_server[0].removeprefix("http://"), path), tmp_path / "noted"
    with contextlib.suppress(StudyError):
        download.fetch(tmp_path / "x" / "train.csv", url, noted, known)
        noted.write_text("0" * 64)
    with pytest.raises(StudyError) as error:
        download.fetch(tmp_path / "x" / "train.csv", url, noted, known)
    texts = [str(error.value), *capfd.readouterr(), noted.read_text() if noted.exists() else ""]
    assert http_server[0] in texts[0]
    assert not [text for text in texts if SECRET in text]


@pytest.mark.parametrize(
    ("origin", "expected", "asked"),
    [
        ({"server": "http://mirror"}, {}, ["http://mirror/p/f"]),
        ({}, {"bytes": 1, "md5": "0"}, ["https://ftp.mcs.anl.gov/pub/candle/public/benchmarks/p/f"]),
        (
            {},
            {"sha256": "0"},
            [f"{how}://ftp.mcs.anl.gov/pub/candle/public/benchmarks/p/f" for how in ("https", "http")],
        ),
    ],
)
def test_candle_is_asked_by_http_only_for_a_file_of_known_content(monkeypatch, origin, expected, asked):
    tried = []

    def fail(path, url, *_):
        tried.append(url)
        raise StudyError("no connection")

    monkeypatch.setattr(download, "fetch", fail)
    with pytest.raises(StudyError, match="no connection" if origin or expected.get("sha256") else "server: http://ftp"):
        download.fetch_published("f", "p/f", origin, "f.sha256", expected)
    assert tried == asked


def test_a_file_of_unknown_sha256_is_said_to_be_unverified(http_server, tmp_path, capfd):
    for known, words in (({}, "not verified: no sha256"), ({"sha256": SHA256}, "as declared")):
        download.fetch(tmp_path / "train.csv", f"{http_server[0]}/nt_train2.csv", tmp_path / "noted", known)
        assert f"SHA-256 {SHA256}, {words}" in capfd.readouterr().out
    (line,) = plan.list_unverified_downloads(of_candle(checksums={"train": {"sha256": SHA256}, "test": {"bytes": 7}}))
    assert "dataset nt3: a download of test is not verified" in line
    known = {"sha256": SHA256}
    assert plan.list_unverified_downloads(of_candle(checksums={"train": known, "test": known})) == []


def test_a_study_s_checksums_go_before_the_benchmark_s():
    content = STUDY | {"datasets": {"p1b2": {"source": "url", "checksums": {"train": {"bytes": 7}}}}}
    content["runs"] = [{"benchmark": "p1b2", "scaling": "weak", "gpus": 1, "loader": "read_csv"}]
    (dataset,) = expansion.expand_study("test", content, "test.yaml").datasets.values()
    assert dataset.origin == {"checksums": {"train": {"bytes": 7}, "test": {"bytes": 56690533}}}


def of_candle(**origin):
    """A study of NT3's own files."""
    content = STUDY | {"datasets": {"nt3": {"source": "url", **origin}}}
    content["runs"] = [{"benchmark": "nt3", "scaling": "weak", "gpus": 1, "loader": "read_csv"}]
    validation.validate(content, schemas.build_study_schema(), "test")
    return expansion.expand_study("test", content, "test.yaml")


def test_the_server_and_checksums_are_no_part_of_the_run():
    here = of_candle(server="http://example.org", checksums={"train": {"bytes": 7}})
    assert define(here.runs[0]) == define(of_candle().runs[0])
    with pytest.raises(StudyError, match="datasets.nt3.checksums.tran: nt3 has no such file; its files: train, test"):
        of_candle(checksums={"tran": {"bytes": 7}})
    with pytest.raises(StudyError, match=r"checksums.train.sha256: 'abc': expected 64 lower-case hex digits"):
        of_candle(checksums={"train": {"sha256": "abc"}})


def test_a_download_of_before_the_checksum_was_given_is_refused_by_the_plan(tmp_path):
    study = of_candle(checksums={"train": {"bytes": len(CONTENT), "sha256": "0" * 64}})
    plan.check_downloads(study, str(tmp_path))
    (dataset,) = study.datasets.values()
    file, noted = (
        Path(dataset.locate_raw(str(tmp_path), "train")),
        Path(dataset.locate_checksum(str(tmp_path), "train")),
    )
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    plan.check_downloads(study, str(tmp_path))
    noted.parent.mkdir(parents=True)
    noted.write_text(f"{SHA256}  {file.name}\n")
    words = f"test.yaml: datasets.nt3.checksums.train: {file} has sha256 {SHA256}, not {'0' * 64}: delete the file"
    with pytest.raises(StudyError, match=re.escape(words)):
        plan.check_downloads(study, str(tmp_path))
    file.write_bytes(CONTENT[1:])
    with pytest.raises(StudyError, match=f"has bytes {len(CONTENT) - 1}, not {len(CONTENT)}"):
        plan.check_downloads(study, str(tmp_path))
