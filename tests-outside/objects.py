#!/usr/bin/env python3
"""Objects without Braid: a client of S3, Azure Blob and directories, and a second writer of Braid's objects.

    objects.py STORE create             makes the bucket or container (those of others must not be there)
    objects.py STORE put KEY FILE       objects.py STORE get KEY FILE
    objects.py STORE delete KEY         objects.py STORE list      keys and sizes
    objects.py STORE copy FOLDER        puts all files below FOLDER, under their paths
    objects.py STORE sample FOLDER      puts the objects of a small cluster; FOLDER gets the file that they hold, as 'file'

STORE is s3:URL/BUCKET:ID:SECRETFILE, azure:URL/CONTAINER:ACCOUNT:SECRETFILE or dir:PATH. The objects are made from the
words of docs/formats.md, not from Braid's code, so whoever reads them proves the page.
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import os
import random
import ssl
import struct
import sys
import urllib.parse
import xml.etree.ElementTree

BLOCK, PIECE = 4096, 1 << 20
CLUSTER, FS = bytes([1] * 16), bytes([2] * 16)


# --- clients --------------------------------------------------------------------------------------


class Remote:
    """What S3 and Azure have in common: signed requests, one connection for each."""

    def __init__(self, url, identity, secret):
        place = urllib.parse.urlsplit(url)
        self.tls, self.host, self.root = place.scheme == "https", place.netloc, place.path
        self.identity, self.secret = identity, secret

    def ask(self, method, key="", query=(), body=b"", headers=()):
        """The body of the answer; ends the program if it is no success."""
        path = self.root + ("/" + urllib.parse.quote(key) if key else "")
        text = "&".join(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(v, safe='')}" for k, v in sorted(query))
        headers = dict(headers) | {"content-length": str(len(body))}
        self.sign(method, path, sorted(query), text, body, headers)
        # Nobody listens here, and the certificates are those of tests.
        trust = ssl._create_unverified_context()
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        connection = kind(self.host, timeout=30, **({"context": trust} if self.tls else {}))
        connection.request(method, path + ("?" + text if text else ""), body, headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status // 100 != 2:
            sys.exit(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:500]}")
        return said


class S3(Remote):
    def sign(self, method, path, query, text, body, headers):
        """AWS signature 4."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers |= {"host": self.host, "x-amz-date": now, "x-amz-content-sha256": digest}
        names = ";".join(sorted(headers))
        fields = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"{method}\n{path}\n{text}\n{fields}\n{names}\n{digest}"
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        what = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, what.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.identity}/{scope}, SignedHeaders={names}, Signature={signature}"
        )

    def create(self):
        self.ask("PUT")

    def put(self, key, body):
        self.ask("PUT", key, body=body)

    def list(self):
        after = {}
        while True:
            page = xml.etree.ElementTree.fromstring(self.ask("GET", query=[("list-type", "2"), *after.items()]))
            space = page.tag[: page.tag.index("}") + 1] if page.tag[0] == "{" else ""
            for entry in page.iter(space + "Contents"):
                yield entry.findtext(space + "Key"), int(entry.findtext(space + "Size"))
            more = page.findtext(space + "NextContinuationToken")
            if not more:
                return
            after = {"continuation-token": more}


class Azure(Remote):
    def sign(self, method, path, query, text, body, headers):
        """The shared key of the account."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers |= {"x-ms-date": now, "x-ms-version": "2023-11-03"}
        own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-ms-"))
        place = f"/{self.identity}{path}" + "".join(f"\n{name}:{value}" for name, value in query)
        length = str(len(body)) if body else ""
        what = f"{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{own}{place}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(self.secret), what.encode(), "sha256")).decode()
        headers["authorization"] = f"SharedKey {self.identity}:{signature}"

    def create(self):
        self.ask("PUT", query=[("restype", "container")])

    def put(self, key, body):
        self.ask("PUT", key, body=body, headers={"x-ms-blob-type": "BlockBlob"}.items())

    def list(self):
        after = {}
        while True:
            query = [("restype", "container"), ("comp", "list"), *after.items()]
            page = xml.etree.ElementTree.fromstring(self.ask("GET", query=query))
            for entry in page.iter("Blob"):
                yield entry.findtext("Name"), int(entry.findtext("Properties/Content-Length"))
            more = page.findtext("NextMarker")
            if not more:
                return
            after = {"marker": more}


class Dir:
    def __init__(self, path):
        self.path = path

    def create(self):
        os.makedirs(self.path, exist_ok=True)

    def put(self, key, body):
        path = os.path.join(self.path, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(body)

    def get(self, key):
        with open(os.path.join(self.path, key), "rb") as file:
            return file.read()

    def delete(self, key):
        os.unlink(os.path.join(self.path, key))

    def list(self):
        for base, _, names in sorted(os.walk(self.path)):
            for name in sorted(names):
                path = os.path.join(base, name)
                yield os.path.relpath(path, self.path), os.path.getsize(path)


Remote.get = lambda self, key: self.ask("GET", key)
Remote.delete = lambda self, key: self.ask("DELETE", key) and None


def store(words):
    kind, rest = words.split(":", 1)
    if kind == "dir":
        return Dir(rest)
    url, identity, file = rest.rsplit(":", 2)
    with open(file) as secret:
        return {"s3": S3, "azure": Azure}[kind](url, identity, secret.read().strip())


# --- the format of objects ------------------------------------------------------------------------


def castagnoli(number):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    return number


TABLE = [castagnoli(number) for number in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def build(partition, serial, term, blocks):
    """Key and bytes of the object that holds 'blocks': inode, number of the block in the file, its 4 KiB."""
    body, crcs = b"", []
    for first in range(0, len(blocks), PIECE // BLOCK):
        piece = blocks[first : first + PIECE // BLOCK]
        entries = (struct.pack("<QII", i << 4 | b >> 32, b & 0xFFFFFFFF, crc32c(data)) for i, b, data in piece)
        descriptor = b"".join(entries).ljust(BLOCK, b"\0")
        crcs.append(crc32c(descriptor))
        body += descriptor + b"".join(data for _, _, data in piece)
    inodes = {inode for inode, _, _ in blocks}
    head = struct.pack("<8sII16s16sIHHQQ", b"BRAIDOBJ", 1, 0, CLUSTER, FS, 4, partition, 0, serial, term)
    head += struct.pack("<QQQQ", len(blocks) * BLOCK, 1_700_000_000, min(inodes), max(inodes))
    head += struct.pack("<II", len(inodes), len(crcs)) + b"".join(struct.pack("<I", crc) for crc in crcs)
    head = head.ljust(BLOCK - 4, b"\0")
    head += struct.pack("<I", crc32c(head + bytes(4)))
    guid = "-".join(CLUSTER.hex()[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    return f"B_{backwards(partition)}/{guid}/d/I_{backwards(serial)}/{term}", head + body + head


def backwards(number):
    return str(number)[::-1]


def sample(to, folder):
    """Inode 77 in three objects: three pieces and a bit, two of its blocks anew, one behind a hole; beside it others."""
    rng = random.Random(5)
    blocks = lambda inode, numbers: [(inode, number, rng.randbytes(BLOCK)) for number in numbers]
    first = blocks(77, range(600)) + blocks(78, range(2))
    again = blocks(77, (4, 5)) + blocks(79, (0, (1 << 32) + 9))
    last = blocks(77, (650,))
    file = bytearray(651 * BLOCK)
    for part in (first, again, last):
        for inode, number, data in part:
            if inode == 77:
                file[number * BLOCK : (number + 1) * BLOCK] = data
    for serial, part in ((100, first), (101, again), (102, last)):
        to.put(*build(145, serial, 7, part))
    with open(os.path.join(folder, "file"), "wb") as out:
        out.write(file)


def main(words):
    to = store(words[0])
    match words[1:]:
        case ["create"]:
            to.create()
        case ["put", key, path]:
            with open(path, "rb") as file:
                to.put(key, file.read())
        case ["get", key, path]:
            with open(path, "wb") as file:
                file.write(to.get(key))
        case ["delete", key]:
            to.delete(key)
        case ["list"]:
            for key, size in to.list():
                print(key, size)
        case ["copy", folder]:
            source = Dir(folder)
            for key, _ in source.list():
                to.put(key, source.get(key))
        case ["sample", folder]:
            sample(to, folder)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
