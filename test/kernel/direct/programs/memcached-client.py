# A client of memcached, by its text protocol: values of many sizes, pipelined requests and counters
# by several connections at once. `memcached-client.py ADDRESS PORT` prints what it got.

import hashlib
import json
import socket
import sys
import threading

CLIENTS = 4
VALUES = 200
LARGE = 3_000_000


def content(key, size):
    return hashlib.shake_128(key.encode()).digest(size)


def size_of(number):
    return (number * 7919) % 9973


class Client:
    """One connection."""

    def __init__(self, address, port):
        self.socket = socket.create_connection((address, port), timeout=15)
        self.stream = bytearray()

    def send(self, data):
        self.socket.sendall(data)

    def fill(self):
        part = self.socket.recv(65536)
        if not part:
            raise EOFError("memcached closed the connection")
        self.stream += part

    def line(self):
        while (end := self.stream.find(b"\r\n")) < 0:
            self.fill()
        line = bytes(self.stream[:end])
        del self.stream[: end + 2]
        return line.decode()

    def take(self, size):
        while len(self.stream) < size:
            self.fill()
        data = bytes(self.stream[:size])
        del self.stream[:size]
        return data

    def ask(self, words):
        self.send(words.encode() + b"\r\n")
        return self.line()

    def put(self, key, value):
        self.send(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")

    def values(self):
        found = {}
        while (line := self.line()) != "END":
            _, key, _, size = line.split(" ")
            found[key] = self.take(int(size))
            assert self.take(2) == b"\r\n", key
        return found


def work(address, port, name, answers):
    client = Client(address, port)
    keys = [f"{name}-{number}" for number in range(VALUES)]
    for number, key in enumerate(keys):
        client.put(key, content(key, size_of(number)))
        assert client.line() == "STORED", key
    # One after the other, then many that do not wait for their answers.
    for number, key in enumerate(keys[:100]):
        client.send(f"get {key}\r\n".encode())
        assert client.values() == {key: content(key, size_of(number))}, key
    for at in range(0, VALUES, 50):
        client.send(f"get {' '.join(keys[at : at + 50])}\r\n".encode())
    for at in range(0, VALUES, 50):
        wanted = {key: content(key, size_of(at + n)) for n, key in enumerate(keys[at : at + 50])}
        assert client.values() == wanted, f"values from {at}"
    large = content(f"{name} large", LARGE)
    client.put(f"{name}-large", large)
    assert client.line() == "STORED", "large"
    client.send(f"get {name}-large\r\n".encode())
    assert client.values() == {f"{name}-large": large}, "large"
    for _ in range(200):
        client.ask("incr hits 1")
    answers[name] = [client.ask(f"delete {keys[0]}"), client.ask(f"touch {keys[0]} 0"), client.ask("nosuch")]


address, port = sys.argv[1], int(sys.argv[2])
first = Client(address, port)
first.put("hits", b"0")
answers = {"first": [first.line()]}
names = [f"c{number}" for number in range(CLIENTS)]
threads = [threading.Thread(target=work, args=(address, port, name, answers)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert set(answers) == {"first", *names}, "some client failed"
first.send(b"get hits\r\n")
hits = first.values()["hits"].decode()
print(json.dumps({"answers": dict(sorted(answers.items())), "hits": hits}))
