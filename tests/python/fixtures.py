"""A chain made by hand and fed block by block."""

import hashlib

MATURITY = 100
RETENTION = 288


def digest(*parts):
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


def outpoint(txid, vout=0):
    return {"txid": txid, "vout": vout}


def tx(name, spends, outputs=1):
    """A transaction that spends these (txid, vout)."""
    return {
        "txid": digest("tx", name),
        "version": 1,
        "size": 200,
        "inputs": [outpoint(*spent) for spent in spends],
        "outputs": [{"value": 1000 + vout, "script": f"owner of {name}".encode()} for vout in range(outputs)],
    }


def coinbase(height, branch="main"):
    made = tx(f"coinbase {branch} {height}", [])
    return {**made, "coinbase": True}


class Feed:
    """Feeds blocks to a server and remembers their hashes, branch by branch."""

    BATCH = 400

    def __init__(self, client, start):
        self.client = client
        self.hashes = {}
        self.height = start - 1
        self.branch = "main"
        self.state("RUNNING")

    def state(self, name):
        self.client.chain.SetState(state=self.client.enum("ChainState")[name])

    def block(self, height, transactions=()):
        previous = self.hashes.get(height - 1, digest("before", height - 1))
        return {
            "height": height,
            "hash": digest("block", self.branch, height),
            "parent": previous,
            "time": 1_700_000_000 + 600 * height,
            "transactions": [coinbase(height, self.branch), *transactions],
        }

    def mine(self, up_to, transactions=None):
        """Mines blocks up to this height; `transactions` go into the last one."""
        blocks = []
        while self.height < up_to:
            self.height += 1
            block = self.block(self.height, transactions or [] if self.height == up_to else [])
            self.hashes[self.height] = block["hash"]
            blocks.append(block)
            if len(blocks) == self.BATCH or self.height == up_to:
                answer = self.client.chain.ApplyBlocks(blocks=blocks)
                assert not answer.HasField("problem"), answer.problem
                assert len(answer.applied) == len(blocks)
                blocks = []

    def roll_back(self, to, branch):
        """Takes back all blocks above a height; those that come next are another branch."""
        self.state("REORGANISING")
        answer = self.client.chain.RollBack(to={"height": to, "hash": self.hashes[to]})
        self.height, self.branch = to, branch
        return answer

    def coin(self, height):
        """The output of the coinbase of a height, spendable a hundred blocks later."""
        return (coinbase(height, self.branch)["txid"], 0)
