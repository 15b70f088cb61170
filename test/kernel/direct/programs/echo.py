# A program for a host: `server` echoes connections of port 7201 in a thread each and those of 7202
# by asyncio; `client ADDRESS ADDRESS` talks to both, blocking and by asyncio, and prints what came
# back.

import asyncio
import hashlib
import json
import socket
import sys
import threading

CONNECTIONS = 4
SIZES = [1 + (number * 7919) % 20011 for number in range(150)]
BULK = 4_000_000


def content(seed, size):
    return hashlib.shake_128(seed.encode()).digest(size)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def read_exactly(connection, size):
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the connection ended early")
        parts += part
    return bytes(parts)


def echo_blocking(connection):
    buffer = bytearray(50_000)
    with connection:
        while size := connection.recv_into(buffer):
            connection.sendall(memoryview(buffer)[:size])


def serve_blocking(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo_blocking, args=(connection,), daemon=True).start()


async def echo_asyncio(reader, writer):
    while part := await reader.read(50_000):
        writer.write(part)
        await writer.drain()
    writer.close()


async def serve():
    listener = socket.create_server(("::", 7201), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=serve_blocking, args=(listener,), daemon=True).start()
    both = socket.create_server(("::", 7202), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.start_server(echo_asyncio, sock=both)
    print("ready", flush=True)
    await server.serve_forever()


def ask_blocking(address, port, number):
    """Messages there and back one after the other, then both ways at once, then half a close."""
    seed = f"{number}"
    echoed = hashlib.sha256()
    with socket.create_connection((address, port), timeout=15) as connection:
        for size in SIZES:
            sent = content(f"{seed} {size}", size)
            connection.sendall(sent)
            back = read_exactly(connection, size)
            assert back == sent, f"message of {size} bytes"
            echoed.update(back)
        bulk = content(seed, BULK)

        def send():
            connection.sendall(bulk)
            connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        sender.join()
        assert b"".join(parts) == bulk, "bulk"
        echoed.update(bulk)
    return echoed.hexdigest()


async def ask_asyncio(address, port, number):
    seed = f"{number}"
    echoed = hashlib.sha256()
    reader, writer = await asyncio.open_connection(address, port)
    for size in SIZES:
        sent = content(f"{seed} {size}", size)
        writer.write(sent)
        back = await reader.readexactly(size)
        assert back == sent, f"message of {size} bytes"
        echoed.update(back)
    bulk = content(seed, BULK)

    async def send():
        for at in range(0, BULK, 100_000):
            writer.write(bulk[at : at + 100_000])
            await writer.drain()
        writer.write_eof()

    _, back = await asyncio.gather(send(), reader.read(-1))
    assert back == bulk, "bulk"
    echoed.update(back)
    writer.close()
    await writer.wait_closed()
    return echoed.hexdigest()


def all_blocking(address, port):
    answers = [None] * CONNECTIONS

    def ask(number):
        answers[number] = ask_blocking(address, port, number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


async def all_asyncio(address, port):
    return await asyncio.gather(*(ask_asyncio(address, port, number) for number in range(CONNECTIONS)))


if sys.argv[1] == "server":
    asyncio.run(serve())
else:
    for port, address in zip((7201, 7202), sys.argv[2:]):
        print(json.dumps({"blocking": all_blocking(address, port)}))
        print(json.dumps({"asyncio": asyncio.run(all_asyncio(address, port))}))
