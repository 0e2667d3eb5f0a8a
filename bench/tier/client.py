"""The clients that Braid is held against. The store's own: what versitygw has to measure itself with, as it is set up by
itself. And curl with signed links, as many transfers at a time as wanted: it computes no checksum and writes nothing, so that
it is the store that is measured."""

import base64
import datetime
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
import time
import urllib.parse

from sizes import MIB, OBJECT, PIECE


class Client:
    """Requests to the store without Braid."""

    def __init__(self, args):
        self.identity, self.bucket, self.program = args.id, args.bucket, args.client
        with open(args.secret) as file:
            self.secret = file.read().strip()
        # Not on the disk that is measured.
        self.folder = os.path.join("/dev/shm", os.path.basename(args.scratch))
        os.makedirs(self.folder, exist_ok=True)
        self.object = os.path.join(self.folder, "object")
        body = os.urandom(OBJECT)
        self.digest = hashlib.sha256(body)
        with open(self.object, "wb") as file:
            file.write(body)

    def key_of(self, scope):
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key

    def sign(self, scope, now, request):
        what = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        return hmac.digest(self.key_of(scope), what.encode(), "sha256").hex()

    def link(self, method, port, key):
        """A link that says all, and leaves the body unsigned."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope, path = f"{now[:8]}/us-east-1/s3/aws4_request", f"/{self.bucket}/{urllib.parse.quote(key)}"
        query = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.identity}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": "86400",
            "X-Amz-SignedHeaders": "host",
        }
        text = "&".join(f"{k}={urllib.parse.quote(v, safe='')}" for k, v in sorted(query.items()))
        request = f"{method}\n{path}\n{text}\nhost:127.0.0.1:{port}\n\nhost\nUNSIGNED-PAYLOAD"
        return f"http://127.0.0.1:{port}{path}?{text}&X-Amz-Signature={self.sign(scope, now, request)}"

    def signed_put(self, port, key):
        """Words for curl: a PUT as Braid sends it in the clear, with a signed body and its checksum."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope, path = f"{now[:8]}/us-east-1/s3/aws4_request", f"/{self.bucket}/{urllib.parse.quote(key)}"
        headers = {
            "host": f"127.0.0.1:{port}",
            "x-amz-checksum-sha256": base64.b64encode(self.digest.digest()).decode(),
            "x-amz-content-sha256": self.digest.hexdigest(),
            "x-amz-date": now,
        }
        names = ";".join(headers)
        fields = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = f"PUT\n{path}\n\n{fields}\n{names}\n{self.digest.hexdigest()}"
        said = f"AWS4-HMAC-SHA256 Credential={self.identity}/{scope}, SignedHeaders={names}, "
        headers["authorization"] = said + f"Signature={self.sign(scope, now, request)}"
        words = [f'url="http://127.0.0.1:{port}{path}"'] + [f'header="{k}: {v}"' for k, v in headers.items()]
        return "\n".join(words)

    def puts(self, port, count, streams, signed=False):
        """MiB/s."""
        keys = [f"raw/{n}" for n in range(count)]
        urls = [self.signed_put(port, key) if signed else f'url="{self.link("PUT", port, key)}"' for key in keys]
        words = f'upload-file="{self.object}"\nheader="Expect:"\noutput="/dev/null"'
        return count * OBJECT / MIB / self.run([f"{url}\n{words}" for url in urls], streams)

    def gets(self, port, count, streams):
        """MiB/s of ranges of 1 MiB."""
        links = [self.link("GET", port, f"raw/{n}") for n in range(count)]
        ranges = [f'range="{at}-{at + PIECE - 1}"\noutput="/dev/null"' for at in range(0, OBJECT, PIECE)]
        return count * OBJECT / MIB / self.run([f'url="{link}"\n{part}' for link in links for part in ranges], streams)

    def disk_gets(self, port, count, streams, folder):
        """MiB/s of whole objects that are durable in files of a folder."""
        os.makedirs(folder)
        names = [os.path.join(folder, str(n)) for n in range(count)]
        jobs = [f'url="{self.link("GET", port, f"raw/{n}")}"\noutput="{name}"' for n, name in enumerate(names)]
        begin = time.monotonic()
        self.run(jobs, streams)
        for name in names:
            file = os.open(name, os.O_RDONLY)
            os.fsync(file)
            os.close(file)
        seconds = time.monotonic() - begin
        shutil.rmtree(folder)
        return count * OBJECT / MIB / seconds

    def run(self, jobs, streams):
        """Seconds that curl took."""
        config = os.path.join(self.folder, "config")
        with open(config, "w") as file:
            file.write("\nnext\n".join(job + "\nfail" for job in jobs))
        begin = time.monotonic()
        words = ["curl", "--no-progress-meter", "-Z", "--parallel-immediate", "--parallel-max", str(streams), "-K", config]
        subprocess.run(words, check=True)
        return time.monotonic() - begin

    def own_puts(self, port, count):
        """MiB/s of the store's own client, 16 objects at a time."""
        return self.own(port, count, "--upload", "--objsize", str(OBJECT))

    def own_gets(self, port, count):
        """The same of GETs of what it has put there. (Objects must be no longer than its ranges: it ends after the first.)"""
        return self.own(port, count, "--download", "--partSize", str(OBJECT))

    def own(self, port, count, *work):
        # Settings of other stores that are around must not reach it.
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        env |= {"AWS_ACCESS_KEY_ID": self.identity, "AWS_SECRET_ACCESS_KEY": self.secret}
        begin = time.monotonic()
        for first in range(0, count, 16):
            what = ["--bucket", self.bucket, "--prefix", f"raw/own-{first}-", "--files", str(min(count - first, 16))]
            at = ["test", "--endpoint", f"http://127.0.0.1:{port}", "bench"]
            words = [self.program, *at, *what, *work]
            done = subprocess.run(words, env=env, capture_output=True, text=True)
            # It says so, and ends well.
            if done.returncode or "PASS" not in done.stdout or "FAIL" in done.stdout:
                raise RuntimeError(f"the store's own client: {done.stdout}{done.stderr}")
        return count * OBJECT / MIB / (time.monotonic() - begin)

    def keys_of_own(self, count):
        return [f"own-{first}-{n}" for first in range(0, count, 16) for n in range(min(count - first, 16))]

    def remove(self, port, names):
        line = http.client.HTTPConnection("127.0.0.1", port)
        for name in names:
            line.request("DELETE", self.link("DELETE", port, f"raw/{name}").split(str(port), 1)[1])
            line.getresponse().read()
        line.close()

    def get_times(self, port, key, length, count):
        """Milliseconds of single GETs of the first 'length' bytes, over one connection."""
        line, times = http.client.HTTPConnection("127.0.0.1", port), []
        link = self.link("GET", port, key).split(str(port), 1)[1]
        for _ in range(count):
            begin = time.monotonic()
            line.request("GET", link, headers={"range": f"bytes=0-{length - 1}"})
            assert len(line.getresponse().read()) == length
            times.append(1000 * (time.monotonic() - begin))
        line.close()
        return times
