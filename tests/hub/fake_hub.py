"""A server that speaks the Hugging Face hub's API, for tests: listings, metadata, redirects to a second host for
large files, ranges, errors, and faults that a test orders."""
import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """Files by name. Those that end in .safetensors or .gguf are large files (LFS), as on the hub."""

    def __init__(self, files, commit="c0ffee" + "0" * 34, private=None, gated=False):
        self.files, self.commit, self.private, self.gated = files, commit, private, gated
        self.revisions = {}  # other branches and tags: repositories whose large files this one has too

    def is_large(self, name):
        return name.endswith((".safetensors", ".gguf"))

    def etag(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_large(name) else git_blob_id(data)


class FakeHub:
    def __init__(self):
        self.repositories = {}
        self.requests = []  # (method, path, token, range)
        self.store_requests = []  # the same for the store of large files
        self.cut = []  # bytes after which the next bodies of large files are cut
        self.busy = []  # (status, Retry-After) of the next answers, before any work
        self.wrong_bytes = False  # large files are sent with a changed byte
        self.wrong_files = []  # only these
        self.held = {}  # name of a large file -> (bytes, an event for which the rest of its body waits)
        self.no_ranges = False
        self.claimed_bytes = None  # the size that listings and metadata claim of large files
        self.slow = 0  # seconds between the halves of a large file
        self.proxied = 0  # requests to this server as a proxy
        self.moved = {}  # old repository name -> new one
        self.lock = threading.Lock()
        self.store = self._serve(self._store_handler())
        self.main = self._serve(self._main_handler())
        self.url = "http://127.0.0.1:%d" % self.main.server_port

    def _serve(self, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self):
        for server in (self.main, self.store):
            server.shutdown()
            server.server_close()

    def bodies(self):
        """GET requests of files."""
        return [r for r in self.requests if r[0] == "GET" and "/resolve/" in r[1]]

    def _main_handler(hub):
        class Main(Handler):
            def answer(self, body):
                hub.requests.append((self.command, self.path, self.token(), self.headers.get("Range")))
                with hub.lock:
                    busy = hub.busy.pop(0) if hub.busy else None
                if busy:
                    headers = {"Retry-After": busy[1]} if busy[1] is not None else {}
                    return self.reply(busy[0], b"busy", headers, body)
                if self.path.startswith("http://"):  # asked as a proxy
                    hub.proxied += 1
                    self.path = "/" + self.path.split("/", 3)[3]
                path, _, query = urllib.parse.unquote(self.path).partition("?")
                parts = path.strip("/").split("/")
                if parts[:2] == ["api", "models"] and len(parts) >= 6 and parts[4] == "revision":
                    return self.listing("/".join(parts[2:4]), "/".join(parts[5:]), query, body)
                if parts[:2] == ["api", "models"] and len(parts) >= 6 and parts[4] == "tree":
                    return self.tree("/".join(parts[2:4]), parts[5], body)
                if len(parts) >= 5 and parts[2] == "resolve":
                    return self.file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)
                return self.reply(404, b"", {}, body)

            def repository(self, name, revision, body):
                repository = hub.repositories.get(name)
                if repository is None or (repository.private and self.token() != repository.private):
                    self.reply(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, body)
                    return None
                if repository.gated and self.token() is None:
                    self.reply(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, body)
                    return None
                for branch, own in {"main": repository, **repository.revisions}.items():
                    if revision in (branch, own.commit):
                        return own
                self.reply(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, body)
                return None

            def listing(self, name, revision, query, body):
                if name in hub.moved:
                    return self.reply(307, b"", {"Location": self.path.replace(name, hub.moved[name])}, body)
                repository = self.repository(name, revision, body)
                if repository is None:
                    return
                siblings = []
                for file, data in repository.files.items():
                    sibling = {"rfilename": file}
                    if "blobs=true" in query:
                        size = hub.claimed_bytes if hub.claimed_bytes and repository.is_large(file) else len(data)
                        sibling.update(size=size, blobId=git_blob_id(data))
                        if repository.is_large(file):
                            sibling["lfs"] = {"sha256": repository.etag(file), "size": size, "pointerSize": 134}
                    siblings.append(sibling)
                text = json.dumps({"id": name, "sha": repository.commit, "siblings": siblings,
                                   "tags": ["safetensors", "license:apache-2.0"]}).encode()
                self.reply(200, text, {"Content-Type": "application/json"}, body)

            def tree(self, name, revision, body):  # which huggingface_hub asks for too
                repository = self.repository(name, revision, body)
                if repository is None:
                    return
                entries = []
                for file, data in repository.files.items():
                    entry = {"type": "file", "oid": git_blob_id(data), "size": len(data), "path": file}
                    if repository.is_large(file):
                        entry["lfs"] = {"oid": repository.etag(file), "size": len(data), "pointerSize": 134}
                    entries.append(entry)
                self.reply(200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, body)

            def file(self, name, revision, file, body):
                if name in hub.moved:
                    return self.reply(307, b"", {"Location": self.path.replace(name, hub.moved[name], 1)}, body)
                repository = self.repository(name, revision, body)
                if repository is None:
                    return
                commit = {"X-Repo-Commit": repository.commit}
                if file not in repository.files:
                    return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", **commit}, body)
                data, etag = repository.files[file], repository.etag(file)
                if not repository.is_large(file):
                    return self.reply(200, data, {"ETag": '"%s"' % etag, **commit}, body)
                target = "http://localhost:%d/%s?signature=x" % (hub.store.server_port, etag)
                self.reply(302, b"Found", {
                    "Location": target, "ETag": '"%s"' % git_blob_id(data), "X-Linked-Etag": '"%s"' % etag,
                    "X-Linked-Size": str(hub.claimed_bytes or len(data)), **commit}, body)

        return Main

    def _store_handler(hub):
        class Store(Handler):
            def answer(self, body):
                hub.store_requests.append((self.command, self.path, self.token(), self.headers.get("Range")))
                etag = self.path.strip("/").partition("?")[0]
                for repository in hub.repositories.values():
                    for name in repository.files:
                        if repository.etag(name) == etag:
                            return self.send(repository.files[name], etag, name, body)
                self.reply(404, b"", {}, body)

            def send(self, data, etag, name, body):
                if hub.wrong_bytes or name in hub.wrong_files:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                first, status, headers = 0, 200, {"ETag": '"%s"' % etag}
                wanted = self.headers.get("Range")
                if wanted and not hub.no_ranges:
                    first, last = wanted[len("bytes="):].split("-")
                    first, status = int(first), 206
                    if first >= len(data):
                        return self.reply(416, b"", {"Content-Range": "bytes */%d" % len(data)}, body)
                    last = min(int(last), len(data) - 1) if last else len(data) - 1
                    headers["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(data))
                    data = data[:last + 1]
                with hub.lock:
                    cut = hub.cut.pop(0) if hub.cut else None
                part = data[first:]
                self.send_response(status)
                for key, value in {"Content-Length": str(len(part)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if cut is not None:
                    self.wfile.write(part[:cut])
                    self.close_connection = True
                    return
                until, event = hub.held.get(name, (first + len(part) // 2, None))
                half = max(0, until - first)
                self.wfile.write(part[:half])
                self.wfile.flush()
                if half < len(part):
                    event.wait(120) if event else time.sleep(hub.slow)
                self.wfile.write(part[half:])

        return Store


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.guarded(True)

    def do_HEAD(self):
        self.guarded(False)

    def guarded(self, body):
        try:
            self.answer(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def token(self):
        value = self.headers.get("Authorization")
        return value[len("Bearer "):] if value and value.startswith("Bearer ") else value

    def reply(self, status, data, headers, body):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass
