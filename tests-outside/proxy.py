#!/usr/bin/env python3
"""A proxy before an object store whose answers fail on demand.

    proxy.py [--listen ADDRESS] --port PORT STORE FOLDER
                                         listens on PORT (0: any) of ADDRESS (127.0.0.1) and passes requests on to STORE
                                         (HOST:PORT)
    proxy.py tell FOLDER COMMAND...      tells the proxy with that FOLDER a command, and prints what it answers

Requests are passed on as they are, with their Host, so that signatures hold. KINDS are GET (an object), LIST, PUT, HEAD, DELETE, POST, several with commas, or ALL:

    KINDS FAULT... [times N]   in effect at once, for the next N requests of these kinds, else for all of them; FAULT is
      delay SECONDS            passed on so much later, or at the next fault that is set
      STATUS [CODE]            not passed on, answered so; with a code of the store, for example 403 QuotaExceeded
      late STATUS [CODE]       carried out, and answered so
      wrong [AT]               one bit of byte AT (that in the middle) is another one
      short                    half of the bytes, and a length that says so
      cut                      half of the bytes, then the end of the connection; reset: an abrupt one
      stall                    half of the bytes, then nothing until the next command
      ok                       as if nothing had been
    KINDS kill WHEN PID [FROM]   SIGKILL to a process, once, when a request of these kinds for an object with data is so far:
                               before (it is passed on), amid (half of its bytes, or of those of the answer, were passed on)
                               or after (the store has answered, and the process does not know); only one that comes from
                               the address FROM, if that is given. 'KINDS kill off' ends it
    counts                     what came since the last 'zero': KIND, requests, how many of them met a fault, how many were
                               for objects with data
    kills                      how many processes were killed
    zero

wrong, short, cut, reset and stall concern what the request carries in a PUT, and the answer in all others. A proxy
answers as many requests at once as come.
"""

import collections
import http.client
import http.server
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
import urllib.parse

KINDS = ("GET", "LIST", "PUT", "HEAD", "DELETE", "POST")
PIECE = 256 * 1024
CODES = {403: "AccessDenied", 404: "NoSuchKey", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
# Concern one connection, not the next.
HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
BODY_FAULTS = ("wrong", "short", "cut", "reset", "stall")
MOMENTS = ("before", "amid", "after")
# What is in the path of objects with data, and of no others.
DATA = "/d/I_"


class Fault:
    """What happens to requests, and to how many of them."""

    def __init__(self, words):
        self.times = None
        if len(words) > 2 and words[-2] == "times":
            self.times, words = int(words[-1]), words[:-2]
        self.seconds, self.status, self.code, self.at, self.body = 0.0, 0, "", None, ""
        self.late = words[0] == "late"
        match words[1:] if self.late else words:
            case ["delay", seconds] if not self.late:
                self.seconds = float(seconds)
            case ["wrong", at] if not self.late:
                self.body, self.at = "wrong", int(at)
            case [body] if body in BODY_FAULTS and not self.late:
                self.body = body
            case [status, *code] if len(code) <= 1 and status.isdigit():
                self.status = int(status)
                self.code = code[0] if code else CODES.get(self.status, "")
            case _:
                raise ValueError(" ".join(words))


class Kill:
    """Who is killed by a request, and when."""

    def __init__(self, words):
        match words:
            case [moment, pid, *address] if moment in MOMENTS and pid.isdigit() and len(address) <= 1:
                self.moment, self.pid, self.address = moment, int(pid), address[0] if address else None
            case _:
                raise ValueError(" ".join(words))


class State:
    """The faults in effect and what was counted. Shared by all connections."""

    def __init__(self):
        self.changed = threading.Condition()
        self.faults, self.round = {}, 0
        self.kills, self.killed = {}, 0
        self.came, self.met, self.data = collections.Counter(), collections.Counter(), collections.Counter()

    def command(self, words):
        """Does it; the answer. ValueError if it is none."""
        with self.changed:
            match words:
                case ["counts"]:
                    return "".join(f"{kind} {self.came[kind]} {self.met[kind]} {self.data[kind]}\n" for kind in KINDS)
                case ["kills"]:
                    return f"{self.killed}\n"
                case ["zero"]:
                    for counter in (self.came, self.met, self.data):
                        counter.clear()
                case [kinds, "kill", *words]:
                    kill = None if words == ["off"] else Kill(words)
                    self.kills |= {kind: kill for kind in self.known(kinds)}
                case [kinds, *fault] if fault:
                    # One for all of them, which counts its times over all.
                    made = None if fault == ["ok"] else Fault(fault)
                    self.faults |= {kind: made for kind in self.known(kinds)}
                    self.round += 1
                    self.changed.notify_all()
                case _:
                    raise ValueError(" ".join(words))
        return ""

    def known(self, kinds):
        """The kinds that a word names."""
        kinds = KINDS if kinds == "ALL" else kinds.split(",")
        if not set(kinds) <= set(KINDS):
            raise ValueError(" ".join(kinds))
        return kinds

    def kill(self, moment, kind, path, address):
        """Kills who is to be killed by this request now."""
        with self.changed:
            kill = self.kills.get(kind)
            if kill is None or kill.moment != moment or DATA not in path or kill.address not in (None, address):
                return
            # Once, for all kinds that were named together.
            self.kills = {of: other for of, other in self.kills.items() if other is not kill}
            try:
                os.kill(kill.pid, signal.SIGKILL)
                self.killed += 1
            except ProcessLookupError:
                pass  # somebody else was first

    def meets(self, kind, path):
        """The fault that a request meets, or none."""
        with self.changed:
            self.came[kind] += 1
            self.data[kind] += DATA in path
            fault = self.faults.get(kind)
            if fault is None or fault.times == 0:
                return None
            if fault.times is not None:
                fault.times -= 1
            self.met[kind] += 1
            return fault

    def wait(self, seconds=None):
        with self.changed:
            now = self.round
            self.changed.wait_for(lambda: self.round != now, seconds)


class Gone(Exception):
    """The connection must not be used any more."""


class Passer(http.server.BaseHTTPRequestHandler):
    """One connection of a client; each of its requests has one of its own to the store, so that none is stale."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state, store = None, ""

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (Gone, OSError):
            pass

    def kind(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        lists = "list-type" in query or query.get("comp") == ["list"] or "prefix" in query
        return "LIST" if self.command == "GET" and lists else self.command

    def moment(self, now):
        self.state.kill(now, self.kind(), self.path, self.client_address[0])

    def work(self):
        fault = self.state.meets(self.kind(), self.path)
        if "transfer-encoding" in self.headers:
            return self.send_error(411)
        length = int(self.headers.get("content-length") or 0)
        if fault and fault.seconds:
            self.state.wait(fault.seconds)
        self.moment("before")
        if fault and fault.status and not fault.late:
            for _ in self.read(length):
                pass
            return self.refuse(fault)
        sends = fault if self.command == "PUT" and fault and fault.body else None
        store = http.client.HTTPConnection(self.store)
        try:
            answer = self.ask(store, length, sends)
            self.moment("after")
            if fault and fault.late:
                answer.read()
                return self.refuse(fault)
            self.tell(answer, None if sends else fault)
        except http.client.HTTPException as error:
            raise Gone from error
        finally:
            store.close()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = work

    def read(self, length):
        """The body of the request, in pieces."""
        while length > 0:
            piece = self.rfile.read(min(length, PIECE))
            if not piece:
                raise Gone
            length -= len(piece)
            yield piece

    def ask(self, store, length, fault):
        """Passes the request on; the answer."""
        said = length // 2 if fault and fault.body == "short" else length
        store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() == "content-length":
                value = str(said)
            if name.lower() not in HOP:
                store.putheader(name, value)
        store.endheaders()
        self.copy(self.read(length), length, store.send, fault)
        return store.getresponse()

    def tell(self, answer, fault):
        """Passes the answer on."""
        body = fault.body if fault else ""
        known = answer.getheader("content-length")
        if known is None and self.command != "HEAD":
            # Told without a length, in pieces: those that come are lists and errors, which are small.
            whole = answer.read()
            length, pieces = len(whole), iter([whole])
        else:
            length, pieces = int(known or 0), iter(lambda: answer.read(PIECE), b"")
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP and name.lower() != "content-length":
                self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("content-length", str(length // 2 if body == "short" else length))
        self.end_headers()
        if self.command != "HEAD":
            self.copy(pieces, length, self.wfile.write, fault)

    def copy(self, pieces, length, send, fault):
        """Sends the pieces, 'length' bytes together, or what the fault leaves of them."""
        body, half, at = fault.body if fault else "", length // 2, 0
        wrong = -1
        if body == "wrong":
            wrong = half if fault.at is None else fault.at
        for piece in pieces:
            if at <= wrong < at + len(piece):
                piece = bytearray(piece)
                piece[wrong - at] ^= 1
            if body in ("short", "cut", "reset", "stall"):
                piece = piece[: max(half - at, 0)]
            # 'short' reads all the same, so that the next request finds the connection at its beginning.
            at += len(piece)
            if piece:
                send(piece)
            if at >= half:
                self.moment("amid")
            if at == half and body in ("cut", "reset", "stall"):
                break
        if body == "stall":
            self.state.wait()
        if body == "reset":
            # Without waiting for what is still to be sent: the other end sees an abrupt end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if body in ("cut", "reset", "stall"):
            # The last that holds it lets go here; the server would end it in an orderly way.
            self.rfile.close()
            self.connection.close()
            raise Gone

    def refuse(self, fault):
        """An answer as S3 gives it; Azure's have the same form."""
        text = f"<?xml version=\"1.0\"?><Error><Code>{fault.code}</Code><Message>of the proxy</Message></Error>".encode()
        self.send_response_only(fault.status)
        self.send_header("content-type", "application/xml")
        self.send_header("content-length", str(len(text)))
        if fault.code:
            self.send_header("x-ms-error-code", fault.code)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_):
        pass  # who asked is gone


class Control(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            answer = self.server.state.command(self.rfile.readline().decode().split())
        except ValueError as error:
            answer = f"unknown command: {error}\n"
        self.wfile.write(answer.encode())


def serve(address, port, store, folder):
    state, path = State(), os.path.join(folder, "control")
    if os.path.exists(path):
        os.unlink(path)  # of one that was killed
    listener = socketserver.ThreadingUnixStreamServer(path, Control)
    listener.state, listener.daemon_threads = state, True
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    Proxy((address, port), type("Passer", (Passer,), {"state": state, "store": store})).serve_forever()


def tell(folder, words):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.path.join(folder, "control"))
        line.sendall((" ".join(words) + "\n").encode())
        answer = line.makefile().read()
    if answer.startswith("unknown command"):
        sys.exit(answer.strip())
    print(answer, end="")


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "tell":
        tell(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 5 and sys.argv[1] == "--port":
        serve("127.0.0.1", int(sys.argv[2]), *sys.argv[3:])
    elif len(sys.argv) == 7 and (sys.argv[1], sys.argv[3]) == ("--listen", "--port"):
        serve(sys.argv[2], int(sys.argv[4]), *sys.argv[5:])
    else:
        sys.exit(__doc__)
