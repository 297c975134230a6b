#!/usr/bin/env python3
"""What neox-train asks of S3, over a directory: objects, parts, lists. Prints its address.

Usage: s3_stand_in.py DIRECTORY [DELAY]     DELAY: seconds before each object or part is taken
Signatures are not checked. A request for a bucket named "denied" is refused, and for one named "busy" put off, behind which
the file busy.asked is there.
"""
import http.server
import io
import os
import pathlib
import re
import sys
import time
import urllib.parse
from xml.sax.saxutils import escape

root = pathlib.Path(sys.argv[1])
delay = float(sys.argv[2]) if len(sys.argv) > 2 else 0
parts = {}  # by upload: the bytes by part


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.reply(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def body(self):
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        raw = self.chunks(self.rfile) if chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self.chunks(io.BytesIO(raw)) if "aws-chunked" in self.headers.get("Content-Encoding", "") else raw

    @staticmethod
    def chunks(stream):
        """Of "<size in hex>[;...]\\r\\n<bytes>\\r\\n", the last one of size 0, with lines behind it up to an empty one."""
        data = b""
        while size := int(stream.readline().split(b";")[0], 16):
            data += stream.read(size)
            stream.readline()
        while stream.readline().strip():
            pass
        return data

    def handle_one(self):
        url = urllib.parse.urlsplit(self.path)
        self.asked = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        if bucket == "denied":
            self.body()
            return self.fail(403, "AccessDenied")
        if bucket == "busy":
            self.body()
            (root / "busy.asked").touch()
            return self.fail(503, "SlowDown")
        self.file = root / bucket / key
        getattr(self, "on_" + self.command.lower())(bucket, key)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def on_put(self, bucket, key):
        data = self.body()
        time.sleep(delay)
        if "uploadId" in self.asked:
            parts[self.asked["uploadId"]][int(self.asked["partNumber"])] = data
        else:
            self.write(data)
        self.reply(200, ETag='"1"')

    def on_post(self, bucket, key):
        self.body()
        if "uploads" in self.asked:
            upload = str(len(parts) + 1)
            parts[upload] = {}
            return self.reply(200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                                   "</InitiateMultipartUploadResult>".encode())
        ready = parts.pop(self.asked["uploadId"])
        self.write(b"".join(ready[n] for n in sorted(ready)))
        self.reply(200, b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')

    def on_delete(self, bucket, key):
        self.body()
        self.reply(204)

    def write(self, data):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_name(self.file.name + ".new")
        temporary.write_bytes(data)
        os.replace(temporary, self.file)

    def on_head(self, bucket, key):
        self.on_get(bucket, key)

    def on_get(self, bucket, key):
        if not key:
            return self.list(bucket) if "list-type" in self.asked else self.reply(200)
        if not self.file.is_file():
            return self.fail(404, "NoSuchKey")
        data = self.file.read_bytes()
        if found := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
            return self.reply(206, data[begin:end + 1], Content_Range=f"bytes {begin}-{end}/{len(data)}")
        self.reply(200, data, ETag='"1"')

    def list(self, bucket):
        names = sorted(str(f.relative_to(root / bucket)) for f in (root / bucket).rglob("*") if f.is_file())
        found = [n for n in names if n.startswith(self.asked.get("prefix", ""))]
        rows = "".join(f"<Contents><Key>{escape(n)}</Key><Size>{(root / bucket / n).stat().st_size}</Size>"
                       "<LastModified>2020-01-01T00:00:00.000Z</LastModified></Contents>" for n in found)
        self.reply(200, f'<?xml version="1.0"?><ListBucketResult><Name>{bucket}</Name><KeyCount>{len(found)}</KeyCount>'
                        f"<IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
