#!/usr/bin/env python3
"""Somebody at a port of a host who does not keep to the rules.

    stranger.py HOST:PORT WHAT [COUNT]

WHAT is what each of COUNT connections, which are open at once, says there (numbers and lengths of docs/formats.md):

    noise      random bytes                             tls-noise     the same, inside TLS
    huge       a TLS record of the greatest length      tls-huge      a frame of 4 GiB, its header whole
    half       half a TLS handshake, then nothing       tls-half      half a frame, then nothing
    silent     nothing                                  tls-silent    nothing, inside TLS
    drip       a byte each second                       tls-old       a hello of an older version
    http-half  half a request of HTTP, then nothing     tls-new       a hello of a later version
    http-noise random bytes, and an endless header      tls-secret    a hello with a secret of its own
    clear      a frame in clear                         tls-cluster   a hello to another cluster
    clear-half half of it, then nothing                 tls-requests  requests before any hello

It waits until the other side has ended each, and prints how many, how long the longest took, in seconds, how many were
taken in at all, and what the last one was told.
"""

import os
import selectors
import socket
import ssl
import struct
import sys
import time

WAIT = 45


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Of the wire that is spoken now.
VERSION = int(os.environ["STRANGER_VERSION"])


def frame(kind, meta, version=VERSION, meta_len=None, data_len=0):
    head = b"BRDW" + struct.pack("<BBHQIII", version, kind, 0, 1, 0, len(meta) if meta_len is None else meta_len, data_len)
    head += struct.pack("<II", crc32c(meta), 0) + bytes(24)
    return head + struct.pack("<I", crc32c(head)) + meta


def hello(secret=b"0" * 64, cluster=bytes(16), version=VERSION):
    # A visitor, on channel 0.
    return frame(1, cluster + struct.pack("<I", len(secret)) + secret + bytes([3, 0]), version)


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context().wrap_bio(incoming, outgoing, server_hostname="any.braid")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    certificate = os.environ.get("STRANGER_CERTIFICATE")
    if certificate:
        made.load_cert_chain(certificate)
    return made


def words(what, known):
    return {
        "noise": lambda: os.urandom(20000),
        "huge": lambda: b"\x16\x03\x01\xff\xff" + os.urandom(70000),
        "half": lambda: client_hello()[:100],
        "silent": lambda: b"",
        "drip": lambda: b"",
        "http-half": lambda: b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nX: ",
        "http-noise": lambda: b"GET / HTTP/1.1\r\nX: " + os.urandom(20000).hex().encode() * 20,
        "clear": hello,
        "clear-half": lambda: hello()[:40],
        "tls-noise": lambda: os.urandom(20000),
        "tls-huge": lambda: frame(1, b"", meta_len=0xFFFFFFFF, data_len=0xFFFFFFFF),
        "tls-half": lambda: hello()[:70],
        "tls-silent": lambda: b"",
        "tls-old": lambda: hello(version=VERSION - 1),
        "tls-new": lambda: hello(version=200),
        "tls-secret": lambda: hello(cluster=known),
        "tls-cluster": hello,
        "tls-requests": lambda: frame(9, b"\x01") * 20,
    }[what]()


def connect(at, what, known):
    """The socket, or None if not even that was to be had."""
    try:
        made = socket.create_connection(at, timeout=20)
        if what.startswith("tls-"):
            made = context().wrap_socket(made, server_hostname="any.braid")
        made.settimeout(20)
        text = words(what, known)
        if text:
            made.sendall(text)
        made.setblocking(False)
        return made
    except (OSError, ssl.SSLError) as error:
        return str(error)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    what, count = sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    known = bytes.fromhex(os.environ.get("STRANGER_CLUSTER", "00" * 16))
    begin, told, longest, ended = time.monotonic(), b"", 0.0, 0
    all_of_them = selectors.DefaultSelector()
    began = {}
    refused = 0
    for _ in range(count):
        made = connect((host, int(port)), what, known)
        if isinstance(made, str):
            refused, ended, told = refused + 1, ended + 1, made.encode()
            continue
        began[made] = time.monotonic()
        all_of_them.register(made, selectors.EVENT_READ)
    dripped = time.monotonic()
    while began and time.monotonic() - begin < WAIT:
        for key, _ in all_of_them.select(0.2):
            made = key.fileobj
            try:
                got = made.recv(65536)
            except (ssl.SSLWantReadError, BlockingIOError):
                continue
            except OSError as error:
                got, told = b"", told or str(error).encode()
            if got:
                told = got
                continue
            all_of_them.unregister(made)
            longest = max(longest, time.monotonic() - began.pop(made))
            ended += 1
            made.close()
        if what == "drip" and time.monotonic() - dripped > 1:
            dripped = time.monotonic()
            for made in list(began):
                try:
                    made.send(b"\x16")
                except OSError:
                    pass
    text = "".join(chr(byte) if 32 <= byte < 127 else " " for byte in told)
    print(f"{ended} of {count} ended, the last after {longest:.1f} s, {count - refused} were taken in: {' '.join(text.split())[:300]}")
    sys.exit(0 if not began else 1)


main()
