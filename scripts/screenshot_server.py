"""The run that the pictures in the docs are of: a server of a model in small, with a leak.

Owns: what is recorded. Must not know: pictures.
"""

import random
import sys

import tensormem as tm


class Server:
    """A server of a model in small: weights stay, caches grow block by block, scratch memory comes and goes."""

    def __init__(self) -> None:
        self.chance = random.Random(3)
        self.pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
        self.elastic = tm.mr.ElasticMemoryResource()
        self.sessions: dict[int, list[tm.mr.DeviceBlock]] = {}
        self.forgotten: list[tm.mr.DeviceBlock] = []

    def load(self) -> None:
        self.weights = [self.pool.allocate("4MiB", tag="weights") for _ in range(8)]

    def prefill(self, request: int) -> None:
        tokens = self.chance.randrange(256, 2048)
        with tm.tag("attention"):
            scores = self.pool.allocate(tokens * 8192)
        with tm.tag("prompt"):
            prompt = self.pool.allocate(tokens * 2048)
        self.sessions[request] = [self.extend() for _ in range(tokens // 256)]
        self.pool.deallocate(scores)
        self.pool.deallocate(prompt)

    def extend(self) -> tm.mr.DeviceBlock:
        return self.elastic.allocate("512KiB", tag="kv-cache")

    def decode(self) -> None:
        with tm.tag("logits"):
            logits = self.pool.allocate(len(self.sessions) * 128_000 * 2)
        for session in self.sessions.values():
            if self.chance.random() < 0.2:
                session.append(self.extend())
        self.pool.deallocate(logits)

    def finish(self, request: int) -> None:
        blocks = self.sessions.pop(request)
        if self.chance.random() < 0.1:
            self.forgotten.append(blocks.pop(0))  # the leak
        for block in blocks:
            self.elastic.deallocate(block)


def record(path: str) -> None:
    with tm.trace(path, stacks=True):
        server = Server()
        server.load()
        for step in range(700):
            wave = 0.55 if step % 350 < 200 else 0.12
            if server.chance.random() < wave and len(server.sessions) < 14:
                server.prefill(step)
            if server.sessions:
                server.decode()
            for request in list(server.sessions):
                if server.chance.random() < 0.035:
                    server.finish(request)
        for request in list(server.sessions):
            server.finish(request)


if __name__ == "__main__":
    record(sys.argv[1])
