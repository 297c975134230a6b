"""Gives our files for Weights & Biases to its own client: `wandb sync` uploads them to a server that this script plays.

  wandb.py WANDB_FILE_TEST   two starts of a run become one run with all rows, config and summary
  wandb.py golden            the bytes that tests/wandb_file_test.cc holds

WANDB_FILE_TEST, with NEOX_WRITE_RUN=DIR in the environment, writes the run there.
"""
import glob
import gzip
import http.server
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import zlib

TEAM, PROJECT = "team", "p"


def fragment(kind, data):
    crc = zlib.crc32(data, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF
    return struct.pack("<IHB", crc, len(data), kind) + data


def golden():
    whole, first, last = 1, 2, 4
    print(fragment(whole, b"abc").hex())
    print((fragment(first, b"abc") + fragment(last, b"defg")).hex())
    print((fragment(first, b"") + fragment(last, b"abc")).hex())
    print((b"\0" * 6 + fragment(whole, b"abc")).hex())


class Server(http.server.BaseHTTPRequestHandler):
    """As much of the server as `wandb sync` of wandb 0.31 asks for."""
    runs = {}  # id -> {"rows", "config", "summary", "name", "group", "exit"}

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/graphql":
            query = json.loads(body)
            return self.answer({"data": self.graph(query["query"], query["variables"] or {})})
        if self.path.endswith("/file_stream"):
            self.stream(self.path.split("/")[-2], json.loads(body))
        self.answer({})

    do_PUT = do_POST

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def graph(self, query, v):
        project = {"id": "p", "name": PROJECT, "entity": {"id": "e", "name": TEAM}}
        if "upsertBucket" in query:
            run = self.runs.setdefault(v["name"], {"rows": [], "project": v["project"], "entity": v["entity"]})
            if v.get("config"):
                run["config"] = json.loads(v["config"])
            run.update({k: v[k] for k in ("displayName", "groupName", "host") if v.get(k)})
            bucket = {"id": "b", "name": v["name"], "displayName": v.get("displayName"), "config": "{}", "sweepName": None,
                      "historyLineCount": len(run["rows"]), "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": f, "uploadUrl": f"http://{self.headers['host']}/up/{f}"} for f in v["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        if "RunResumeStatus" in query:
            run = self.runs.get(v["name"])
            bucket = run and {"id": "b", "name": v["name"], "summaryMetrics": json.dumps(run["summary"]), "displayName": "first",
                              "logLineCount": 0, "historyLineCount": len(run["rows"]), "eventsLineCount": 0,
                              "historyTail": json.dumps([json.dumps(run["rows"][-1])]), "eventsTail": "[]",
                              "config": json.dumps(run["config"]), "tags": [], "notes": "", "wandbConfig": "{}"}
            return {"model": {**project, "bucket": bucket}}
        return {}

    def stream(self, run_id, body):
        run = self.runs[run_id]
        files = body.get("files") or {}
        if part := files.get("wandb-history.jsonl"):
            run["rows"][part["offset"]:] = map(json.loads, part["content"])
        if part := files.get("wandb-summary.json"):
            run["summary"] = json.loads(part["content"][-1])
        if "exitcode" in body:
            run["exit"] = body["exitcode"]


def check(run):
    assert (run["project"], run["entity"], run["displayName"], run["groupName"], run["host"]) == (
        PROJECT, TEAM, "first", "g", "node1"), run
    assert run["config"]["optimizer"]["value"] == {"params": {"lr": 0.0006}}, run["config"]
    assert run["config"]["text"]["value"] == "x" * 70000
    rows = run["rows"]
    assert [row["_step"] for row in rows] == list(range(1, 2001)), [row["_step"] for row in rows]
    for step, row in enumerate(rows, 1):
        loss = row["train/lm_loss"]
        assert math.isnan(loss) if step == 13 else loss == 1 / step, row
        assert row.get("validation/lm_loss") == (2.5 if step % 20 == 0 else None), row
    assert run["summary"]["train/lm_loss"] == 1 / 2000 and run["exit"] == 0, run["summary"]
    print(f"wandb sync: 2 starts are one run with {len(rows)} rows")


def main(writer):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([writer, "--gtest_filter=*WritesARunForOthers"], check=True,
                       env={**os.environ, "NEOX_WRITE_RUN": folder}, stdout=subprocess.DEVNULL)
        home = {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "a" * 40, "HOME": folder,
                "WANDB_ERROR_REPORTING": "false"}
        starts = sorted(glob.glob(folder + "/wandb/offline-run-*"))
        assert len(starts) == 2, starts
        for given in (starts[:1], starts, starts):  # what was uploaded before is passed over
            client = [sys.executable, "-m", "wandb", "sync", *given]
            done = subprocess.run(client, env={**os.environ, **home}, cwd=folder, timeout=120, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout
    (run,) = Server.runs.values()
    check(run)


if __name__ == "__main__":
    # This file has the name of the package that it needs; only the child imports that.
    golden() if sys.argv[1] == "golden" else main(sys.argv[1])
