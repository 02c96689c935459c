"""What goes wrong with downloads, from a server on this machine."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time

from place import SCRIPTS, one_line_error
from registry import fault

CONTENT = b"0,1.5\n1,2.5\n" * 20_000
FOLDER = "/Pilot1/normal-tumor"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the first folder of the address."""

    def do_GET(self):
        how = self.path.split("/")[1]
        if how == "missing":
            self.send_error(404)
        elif how == "broken":
            self.send_error(503)
        elif how == "moved":
            self.send_response(302)
            self.send_header("Location", self.path.replace("moved", "good", 1))
            self.end_headers()
        elif how == "silent":
            time.sleep(600)  # its thread ends with the process
        else:
            content = b"<!DOCTYPE html><html>log in</html>" if how == "portal" else CONTENT
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write({"cut": content[:5000], "other": content[::-1]}.get(how, content))

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def server():
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


def line(place, address):
    definition, origin = json.dumps({"source": "url"}), json.dumps({"server": address})
    # Half a minute is what a real server gets to answer in; nobody wants to wait for that here.
    program = (
        f"import sys, runpy\nfrom study.data import download\n"
        f"download.TIMEOUT_S = 1\nsys.argv[0] = {str(SCRIPTS / 'fetch_dataset.py')!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return [sys.executable, "-c", program, "--benchmark", "nt3", "--file", "train",
            "--definition", definition, "--origin", origin,
            "--checksum", place.folder / "train.sha256", "--output", place.folder / "train.csv"]  # fmt: skip


def fails(place, how, words):
    """The download ends with one line of error that has ``words`` and names the remedy; nothing is left."""
    with server() as address:
        place.injected()
        one_line_error(line(place, f"{address}/{how}"), ["nt_train2.csv" if how != "x" else "", *words])
        place.detected()
    assert list(place.folder.iterdir()) == []


FAILING = {
    "a connection that is cut": ("cut", ["source: path"]),
    "a missing file on the server": ("missing", ["404", "source: path"]),
    "a server in trouble": ("broken", ["503", "source: path"]),
    "a web page in place of the file": ("portal", ["a web page", "source: path"]),
    "a server that does not answer": ("silent", ["no answer within", "source: path"]),
}
for title, (how, told) in FAILING.items():

    @fault(title, "download", quick=how in ("cut", "portal"))
    def _(place, how=how, told=told):
        """One line of error that names file, server and remedy; nothing is left behind."""
        fails(place, how, told)


@fault("no server at all", "download")
def no_server(place):
    """One line of error that names file, server and remedy; nothing is left behind."""
    place.injected()
    one_line_error(line(place, "http://127.0.0.1:9"), ["no connection", "source: path"])
    place.detected()
    assert list(place.folder.iterdir()) == []


@fault("a redirect", "download")
def redirect(place):
    """Not a fault: it is followed, and the file is whole."""
    with server() as address:
        place.injected()
        subprocess.run([str(each) for each in line(place, f"{address}/moved")], check=True, capture_output=True)
        place.detected()
    assert (place.folder / "train.csv").read_bytes() == CONTENT


@fault("a file that changed on the server", "download")
def changed(place):
    """Refused by its checksum, with one line of error; the file is not there."""
    with server() as address:
        subprocess.run([str(each) for each in line(place, f"{address}/good")], check=True, capture_output=True)
        (place.folder / "train.csv").unlink()
        place.injected()
        one_line_error(line(place, f"{address}/other"), ["SHA-256", "delete the checksum file"])
        place.detected()
    assert [path.name for path in place.folder.iterdir()] == ["train.sha256"]
