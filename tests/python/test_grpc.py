"""End to end through gRPC, by a client that is not ours. Each test has a server and a store of its own.

    SAPWOOD_ADDRESS=127.0.0.1:PORT python test_grpc.py NAME     runs one test
    python test_grpc.py --list                                  lists them
"""

import os
import sys
import threading

import grpc
from fixtures import MATURITY, RETENTION, Feed, coinbase, digest, outpoint, tx
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sapwood_client import Sapwood

TESTS = {}


def test(function):
    TESTS[function.__name__] = function
    return function


class World:
    """A server and what most tests do with it."""

    def __init__(self):
        self.address = os.environ["SAPWOOD_ADDRESS"]
        self.client = Sapwood(self.address, token=os.environ.get("SAPWOOD_TOKEN"))
        self.utxo, self.chain, self.pruner = self.client.utxo, self.client.chain, self.client.pruner
        self.codes = {number: name for name, number in self.client.enum("ProblemCode").items()}

    def parent_and_child(self, outputs=1):
        """A parent mined at 1000 with all outputs there, on a chain that begins at 900."""
        self.feed = Feed(self.client, 900)
        self.feed.mine(999)
        parent = tx("parent", [self.feed.coin(900)], outputs)
        self.feed.mine(1000, [parent])
        return parent

    def create(self, transaction, height, **options):
        answer = self.utxo.Create(transactions=[{"transaction": transaction, **options}], height=height)
        assert not answer.failed, answer.failed

    def refused(self, transaction, height):
        """Creates a transaction that is refused, and returns the problem and the codes of its inputs."""
        [problem] = self.utxo.Create(transactions=[{"transaction": transaction}], height=height).failed
        return self.codes[problem.code], [self.codes[refusal.code] for refusal in problem.inputs]

    def record(self, transaction):
        [found] = self.utxo.Get(txids=[transaction["txid"]]).records
        return found.record if found.HasField("record") else None

    def status(self, txid, height, vout=0):
        [status] = self.utxo.GetSpendStatus(outpoints=[outpoint(txid, vout)], height=height).statuses
        names = {number: name for name, number in self.client.enum("SpendStatus").items()}
        return names[status.status]

    def prune(self, **request):
        job = self.pruner.Prune(wait=True, **request).job
        assert job.state == self.client.enum("JobState")["COMPLETED"], job
        return job

    def kept_at(self, transaction, height, transactions=None):
        """Mines up to a height, prunes, and says why the record is still there."""
        self.feed.mine(height, transactions)
        self.prune()
        assert self.record(transaction) is not None, f"gone at {height}"
        explained = self.pruner.Explain(txid=transaction["txid"])
        assert explained.stored and not explained.prunable, explained.text
        return explained

    def gone_at(self, transaction, height):
        self.feed.mine(height)
        self.prune()
        assert self.record(transaction) is None, self.pruner.Explain(txid=transaction["txid"]).text
        assert not self.pruner.Explain(txid=transaction["txid"]).stored


def fails(call, code):
    """The error of a call that must fail with this code."""
    try:
        answer = call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError(f"should have failed with {code}, answered {answer}")


def equal(found, expected):
    assert found == expected, f"\n   found {found!r}\nexpected {expected!r}"


# --- discovery


@test
def services_are_discovered_by_reflection(world):
    services = {"sapwood.v1.Utxo", "sapwood.v1.Chain", "sapwood.v1.Pruner", "grpc.health.v1.Health"}
    assert services <= set(world.client.services), world.client.services
    assert {"Create", "Spend", "Get", "ListByAddress"} <= set(world.utxo.methods())
    assert {"ApplyBlocks", "RollBack", "Subscribe", "ReportBlockPersisted"} <= set(world.chain.methods())
    assert {"Health", "Prune", "Plan", "Explain", "SetHold"} <= set(world.pruner.methods())
    health = health_pb2_grpc.HealthStub(world.client.channel)
    for service in ["", "sapwood.v1.Pruner"]:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        equal(answer.status, health_pb2.HealthCheckResponse.SERVING)
    answer = world.pruner.Health()
    assert answer.ok and answer.details and answer.timestamp_ms > 1_600_000_000_000, answer


# --- the timelines of safe deletion


@test
def child_mined_at_once_parent_kept_at_1288_gone_at_1289(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    world.feed.mine(1001, [child])
    explained = world.kept_at(parent, 1288)
    equal((explained.reason, explained.earliest), ("child_unstable", 1289))
    equal(world.pruner.Plan(height=1288).records, 0)
    world.feed.mine(1289)
    world.gone_at(parent, 1289)
    assert world.record(child) is not None, "its own output is not spent"


@test
def child_mined_very_late_parent_gone_at_1788(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    equal(world.pruner.Explain(txid=parent["txid"]).reason, "child_unmined")
    world.kept_at(parent, 1288)
    world.kept_at(parent, 1499)
    world.feed.mine(1500, [child])
    world.kept_at(parent, 1787)
    world.gone_at(parent, 1788)


@test
def child_orphaned_and_mined_again_parent_gone_at_1588(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    world.feed.mine(1100, [child])
    world.feed.mine(1200)
    answer = world.feed.roll_back(1099, "other")
    equal((answer.blocks, child["txid"] in answer.unmined), (101, True))
    world.feed.mine(1200)
    world.feed.state("RUNNING")
    record = world.record(child)
    equal((record.HasField("mined_at"), record.unmined_since), (False, 1000))
    world.kept_at(parent, 1288)
    world.feed.mine(1299)
    world.feed.mine(1300, [child])
    explained = world.kept_at(parent, 1587)
    equal(explained.earliest, 1588)
    world.gone_at(parent, 1588)


@test
def child_never_mined_parent_never_gone(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    for height in [1288, 1500, 2000]:
        explained = world.kept_at(parent, height)
        assert any(guard.name == "children" and guard.retains for guard in explained.guards), explained.text
        assert not explained.HasField("earliest"), explained.text
    equal(world.status(child["txid"], 2000), "SPENDABLE")


@test
def child_a_long_before_child_b(world):
    """A is mined, deep, and pruned itself long before B is mined: the parent remembers it and waits for B."""
    parent = world.parent_and_child(outputs=2)
    first, last = tx("a", [(parent["txid"], 0)]), tx("b", [(parent["txid"], 1)])
    after = tx("after a", [(first["txid"], 0)])
    world.create(last, 1000)
    world.feed.mine(1001, [first])
    world.feed.mine(1002, [after])
    world.gone_at(first, 1290)
    world.kept_at(parent, 1290)
    world.feed.mine(1499)
    world.feed.mine(1500, [last])
    world.kept_at(parent, 1787)
    world.gone_at(parent, 1788)


@test
def both_children_are_checked_when_one_is_orphaned(world):
    parent = world.parent_and_child(outputs=2)
    first, last = tx("a", [(parent["txid"], 0)]), tx("b", [(parent["txid"], 1)])
    world.create(first, 1000)
    world.create(last, 1000)
    world.feed.mine(1100, [first])
    world.feed.mine(1150, [last])
    world.feed.roll_back(1099, "other")
    world.feed.mine(1150, [last])
    world.feed.state("RUNNING")
    explained = world.kept_at(parent, 1150 + RETENTION)
    assert first["txid"].hex() in explained.text, explained.text


@test
def pruning_that_runs_first_after_a_long_pause_keeps_the_parent(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    world.pruner.SetEnabled(enabled=False)
    world.feed.mine(1500)
    fails(lambda: world.pruner.Prune(), grpc.StatusCode.FAILED_PRECONDITION)
    equal(world.pruner.GetStatus().enabled, False)
    world.pruner.SetEnabled(enabled=True)
    world.kept_at(parent, 1500)


# --- incidents


@test
def a_short_fork_does_not_restart_the_clock_of_an_unmined_child(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    world.feed.mine(1100, [child])
    world.feed.roll_back(1099, "other")
    world.feed.mine(1101)
    world.feed.state("RUNNING")
    equal(world.record(child).unmined_since, 1000)
    equal(list(world.utxo.ListOldUnmined(cutoff=1000).txids), [child["txid"]])
    world.kept_at(parent, 1400)
    world.feed.mine(1401, [child])
    equal(world.record(child).mined_at, 1401)


@test
def a_deleted_loser_leaves_no_dangling_spender(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    changed = world.utxo.SetConflicting(txids=[child["txid"]], on=True, height=1000).changed
    equal(list(changed), [child["txid"]])
    equal(list(world.record(parent).conflicting_children), [child["txid"]])
    equal(world.utxo.Delete(txids=[child["txid"]]).succeeded, 1)
    equal(list(world.record(parent).conflicting_children), [])
    equal(world.status(parent["txid"], 1001), "SPENDABLE")


@test
def a_deleted_unmined_child_gives_its_input_back(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    equal(world.status(parent["txid"], 1001), "SPENT")
    equal(world.utxo.Delete(txids=[child["txid"], digest("never seen")]).succeeded, 2)
    equal(world.status(parent["txid"], 1001), "SPENDABLE")
    world.create(tx("other child", [(parent["txid"], 0)]), 1000)


@test
def a_pruned_child_cannot_come_back(world):
    parent = world.parent_and_child(outputs=2)
    child = tx("child", [(parent["txid"], 0)])
    after = tx("after", [(child["txid"], 0)])
    world.feed.mine(1001, [child])
    world.feed.mine(1002, [after])
    world.gone_at(child, 1290)
    world.kept_at(parent, 1290)
    code, inputs = world.refused(child, 1290)
    equal(code, "INPUTS_REFUSED")
    assert inputs in (["SPENDER_PRUNED"], ["SPENT_AND_SETTLED"]), inputs
    equal(world.record(child), None)


@test
def an_expired_preservation_does_not_delete_a_live_coin(world):
    parent = world.parent_and_child(outputs=2)
    child = tx("child", [(parent["txid"], 0)])
    world.feed.mine(1001, [child])
    equal(world.utxo.Preserve(txids=[parent["txid"], digest("never seen")], until=1100).present, 1)
    equal(world.record(parent).preserve_until, 1100)
    equal(world.utxo.ExpirePreservations(height=4_000_000).ended, 0)
    equal(world.record(parent).preserve_until, 1100)
    explained = world.kept_at(parent, 1400)
    equal(explained.reason, "unspent")
    assert not world.record(parent).HasField("preserve_until")
    equal(world.status(parent["txid"], 1400, vout=1), "SPENDABLE")


@test
def preservations_end_when_they_are_over_and_not_before(world):
    # Else the pruner would be first.
    world.pruner.SetEnabled(enabled=False)
    parent = world.parent_and_child(outputs=2)
    equal(world.utxo.Preserve(txids=[parent["txid"]], until=1003).present, 1)
    world.feed.mine(1002, [])
    equal(world.utxo.ExpirePreservations(height=1003).ended, 0)
    world.feed.mine(1003, [])
    equal(world.utxo.ExpirePreservations(height=1002).ended, 0)
    equal(world.utxo.ExpirePreservations(height=1003).ended, 1)
    assert not world.record(parent).HasField("preserve_until")


@test
def a_running_block_assembly_that_is_behind_holds_everything(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    world.chain.SetBlockAssembly(running=True, height=1200)
    world.feed.mine(1289)
    explained = world.kept_at(parent, 1289)
    equal(explained.reason, "held")
    equal(world.pruner.GetStatus().decided_by, "block-assembly")
    world.chain.SetBlockAssembly(running=False, height=1289)
    equal(world.pruner.Plan().blocked.reason, world.client.enum("StopReason")["BLOCK_ASSEMBLY_NOT_RUNNING"])
    world.chain.SetBlockAssembly(running=True, height=1289)
    world.gone_at(parent, 1289)


@test
def the_persister_decides_and_zero_is_not_none(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    world.chain.RegisterConsumer(consumer=world.client.enum("Consumer")["PERSISTER"])
    world.kept_at(parent, 1289)
    status = world.pruner.GetStatus()
    equal((status.HasField("safe_height"), status.decided_by), (False, "persister"))
    for height, reason in [(0, "held"), (1288, "held")]:
        world.chain.ReportBlockPersisted(height=height)
        equal(world.kept_at(parent, 1289).reason, reason)
    world.chain.ReportBlockPersisted(height=1289)
    world.gone_at(parent, 1289)
    fails(lambda: world.chain.ReportBlockPersisted(), grpc.StatusCode.INVALID_ARGUMENT)


@test
def nothing_goes_while_a_branch_is_exchanged(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    world.feed.mine(1288)
    world.feed.state("REORGANISING")
    world.feed.mine(1289)
    job = world.pruner.Prune(wait=True).job
    equal(job.state, world.client.enum("JobState")["CANCELLED"])
    equal(job.stopped_early.reason, world.client.enum("StopReason")["CHAIN_NOT_RUNNING"])
    assert world.record(parent) is not None
    world.feed.state("RUNNING")
    world.gone_at(parent, 1289)


@test
def the_policy_changes_at_run_time(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    world.kept_at(parent, 1120)
    refused = fails(lambda: world.pruner.SetPolicy(retention=100), grpc.StatusCode.INVALID_ARGUMENT)
    assert "Raise the retention" in refused.details(), refused.details()
    shorter = {"retention": 100, "reorg_window": 50}
    before = world.pruner.GetPolicy().policy
    refused = fails(lambda: world.pruner.SetPolicy(**shorter), grpc.StatusCode.FAILED_PRECONDITION)
    assert "retention goes from" in refused.details(), refused.details()
    equal(world.pruner.GetPolicy().policy, before)
    policy = world.pruner.SetPolicy(**shorter, confirm=True).policy
    equal((policy.retention, policy.reorg_window, policy.coinbase_maturity), (100, 50, MATURITY))
    equal(world.pruner.GetPolicy().policy, policy)
    world.gone_at(parent, 1121)


# --- the store


@test
def a_rival_learns_who_was_first(world):
    parent = world.parent_and_child()
    first, rival = tx("first", [(parent["txid"], 0)]), tx("rival", [(parent["txid"], 0)])
    world.create(first, 1000)
    batch = [{"transaction": made} for made in [first, rival, tx("fine", [(world.feed.coin(900)[0], 0)])]]
    batch[2]["transaction"]["inputs"] = []
    answer = world.utxo.Create(transactions=batch, height=1000)
    equal(answer.succeeded, 1)
    equal([(problem.index, world.codes[problem.code]) for problem in answer.failed], [(0, "ALREADY_EXISTS"), (1, "INPUTS_REFUSED")])
    [refusal] = answer.failed[1].inputs
    equal((world.codes[refusal.code], refusal.spender.txid, refusal.spender.vin), ("SPENT", first["txid"], 0))
    assert not refusal.HasField("height"), "it is not mined"
    world.create(rival, 1000, conflicting=True)
    losers = world.utxo.ResolveConflicts(winners=[rival["txid"]], height=1000).losers
    equal(list(losers), [first["txid"]])
    world.feed.mine(1001, [rival])
    error = fails(
        lambda: world.utxo.ResolveConflicts(winners=[first["txid"]], height=1001), grpc.StatusCode.FAILED_PRECONDITION
    )
    problem = world.client.problem(error)
    equal((world.codes[problem.code], problem.txid, problem.height), ("MINED", rival["txid"], 1001))


@test
def outputs_are_frozen_unfrozen_reassigned_and_locked(world):
    parent = world.parent_and_child()
    coin = outpoint(parent["txid"])
    child = tx("child", [(parent["txid"], 0)])
    equal(world.utxo.Freeze(outpoints=[coin]).succeeded, 1)
    equal(world.refused(child, 1000), ("INPUTS_REFUSED", ["FROZEN"]))
    [problem] = world.utxo.Freeze(outpoints=[coin]).failed
    equal(world.codes[problem.code], "NOT_UNSPENT")
    change = {"outpoint": coin, "expected_hash": digest("wrong"), "script": b"new owner"}
    [problem] = world.utxo.Reassign(outputs=[change], height=1000).failed
    equal(world.codes[problem.code], "HASH_MISMATCH")
    change["expected_hash"] = problem.hash
    equal(world.utxo.Reassign(outputs=[change], height=1000).succeeded, 1)
    equal(world.status(parent["txid"], 1999), "IMMATURE")
    equal(world.status(parent["txid"], 2000), "SPENDABLE")
    [reassigned] = world.record(parent).reassignments
    equal((reassigned.height, reassigned.spendable_from), (1000, 2000))
    [listed] = world.utxo.ListByAddress(script=b"new owner").outputs
    equal(listed.outpoint.txid, parent["txid"])
    equal(world.utxo.SetLocked(txids=[parent["txid"]], on=True).succeeded, 1)
    equal(world.status(parent["txid"], 2000), "LOCKED")
    [problem] = world.utxo.Unfreeze(outpoints=[coin]).failed
    equal(world.codes[problem.code], "NOT_FROZEN")


@test
def transactions_are_mined_and_unmined_by_hand(world):
    parent = world.parent_and_child()
    child = tx("child", [(parent["txid"], 0)])
    world.create(child, 1000)
    block = {"block_id": 7000, "height": 1001, "on_longest_chain": True}
    answer = world.utxo.SetMined(txids=[child["txid"], digest("never seen")], block=block, height=1001)
    equal((answer.succeeded, [(p.index, world.codes[p.code]) for p in answer.failed]), (1, [(1, "NOT_FOUND")]))
    equal(world.record(parent).outputs[0].slot.spent.mined_at, 1001)
    world.utxo.MarkOnLongestChain(txids=[child["txid"]], on=False, height=1002)
    equal(world.record(child).unmined_since, 1000)
    assert not world.record(parent).outputs[0].slot.spent.HasField("mined_at")
    world.utxo.MarkOnLongestChain(txids=[child["txid"]], on=True, height=1002)
    [problem] = world.utxo.Unspend(spends=[{"outpoint": outpoint(parent["txid"]), "spender": {"txid": child["txid"]}}]).failed
    equal((world.codes[problem.code], problem.height), ("SPENDER_MINED", 1001))
    equal(world.utxo.SetMined(txids=[child["txid"]], block=block, unset=True, height=1002).succeeded, 1)
    equal(world.utxo.Unspend(spends=[{"outpoint": outpoint(parent["txid"]), "spender": {"txid": child["txid"]}}]).succeeded, 1)
    spend = {"txid": child["txid"], "inputs": [{"vin": 0, "outpoint": outpoint(parent["txid"])}]}
    equal(world.utxo.Spend(spends=[spend, spend], height=1002).succeeded, 2)


@test
def pages_are_complete_and_in_order(world):
    world.feed = Feed(world.client, 1)
    for height in range(1, 4):
        world.feed.mine(height)
    names = [f"page {number}" for number in range(25)]
    for height, name in enumerate(names, start=10):
        made = tx(name, [])
        made["outputs"][0]["script"] = b"one owner"
        world.create(made, height)
    expected = [tx(name, [])["txid"] for name in names]

    def pages(call, items, **request):
        found, after = [], {}
        while True:
            page = call(limit=10, **request, **after)
            assert len(getattr(page, items)) <= 10
            found.extend(getattr(page, items))
            if not page.HasField("cursor"):
                return found
            after = {"cursor": page.cursor}

    equal([made.txid for made in pages(world.utxo.ListUnmined, "transactions")], expected)
    equal(pages(world.utxo.ListOldUnmined, "txids", cutoff=19), expected[:10])
    owned = pages(world.utxo.ListByAddress, "outputs", script=b"one owner")
    equal([output.outpoint.txid for output in owned], expected)
    owned = pages(world.utxo.ListByAddress, "outputs", script=b"one owner", order=2)
    equal([output.outpoint.txid for output in owned], expected[::-1])
    error = fails(lambda: world.utxo.ListByAddress(credential=bytes(28)), grpc.StatusCode.FAILED_PRECONDITION)
    assert "no index by credential" in error.details(), "an index that is not kept is not an empty one"
    counts = world.utxo.GetCounts()
    equal((counts.records, counts.unmined, counts.unspent), (28, 25, 28))
    equal(world.utxo.GetApplied().applied.height, 3)
    coins = world.utxo.GetUtxoSet().set
    equal((coins.outputs, coins.value, coins.applied.height, len(coins.muhash)), (3, "3000", 3, 64))
    [there, missing] = world.utxo.GetOutputs(outpoints=[outpoint(expected[0]), outpoint(expected[0], 1)]).outputs
    equal((there.output.output.value, missing.HasField("output")), (1000, False))


@test
def a_young_coinbase_cannot_be_spent(world):
    world.feed = Feed(world.client, 900)
    world.feed.mine(998)
    child = tx("child", [world.feed.coin(900)])
    equal(world.refused(child, 999), ("INPUTS_REFUSED", ["IMMATURE"]))
    answer = world.chain.ApplyBlocks(blocks=[world.feed.block(999, [child])])
    equal((len(answer.applied), world.codes[answer.problem.code], answer.problem.index), (0, "BAD_BLOCK", 0))
    equal(answer.problem.inputs[0].height, 1000)
    world.feed.mine(999)
    world.feed.mine(1000, [child])


# --- the chain


@test
def a_bad_block_changes_nothing_and_good_ones_before_it_stay(world):
    world.feed = Feed(world.client, 900)
    world.feed.mine(905)
    good = world.feed.block(906)
    world.feed.hashes[906] = good["hash"]
    gap = world.feed.block(908)
    answer = world.chain.ApplyBlocks(blocks=[good, gap])
    equal([block.height for block in answer.applied], [906])
    equal((answer.problem.index, world.codes[answer.problem.code], answer.problem.height), (1, "NOT_NEXT", 907))
    stranger = {**world.feed.block(907), "parent": digest("stranger")}
    problem = world.chain.ApplyBlocks(blocks=[stranger]).problem
    equal((world.codes[problem.code], problem.hash), ("WRONG_PARENT", good["hash"]))
    twice = world.feed.block(907, [coinbase(907)])
    equal(world.codes[world.chain.ApplyBlocks(blocks=[twice]).problem.code], "BAD_BLOCK")
    equal(world.chain.GetStatus().applied.height, 906)


@test
def a_rollback_below_the_floor_is_refused(world):
    world.feed = Feed(world.client, 900)
    world.feed.mine(900 + RETENTION + 50)
    below = {"height": 940, "hash": world.feed.hashes[940]}
    error = fails(lambda: world.chain.RollBack(to=below), grpc.StatusCode.FAILED_PRECONDITION)
    problem = world.client.problem(error)
    equal((world.codes[problem.code], problem.height), ("BELOW_FLOOR", 950))
    wrong = {"height": 1000, "hash": digest("wrong")}
    problem = world.client.problem(fails(lambda: world.chain.RollBack(to=wrong), grpc.StatusCode.FAILED_PRECONDITION))
    equal((world.codes[problem.code], problem.hash), ("OTHER_BLOCK", world.feed.hashes[1000]))
    fails(lambda: world.chain.RollBack(), grpc.StatusCode.INVALID_ARGUMENT)
    equal(world.chain.GetStatus().applied.height, 1238)
    equal(world.chain.RollBack(to={"height": 950, "hash": world.feed.hashes[950]}).blocks, 288)


@test
def events_are_heard_as_they_happen(world):
    events = world.chain.Subscribe()
    first = next(events)
    equal(first.WhichOneof("event"), "standing")
    world.feed = Feed(world.client, 900)
    world.feed.mine(902)
    world.feed.roll_back(901, "other")
    world.chain.ReportBlockPersisted(height=0)
    heard = [next(events) for _ in range(9)]
    kinds = [event.WhichOneof("event") for event in heard]
    blocks = ["block_applied", "mined_set"] * 3
    equal(kinds, ["state_changed", *blocks, "state_changed", "rolled_back"])
    equal((heard[8].rolled_back.to.height, heard[8].rolled_back.blocks), (901, 1))
    persisted = next(events)
    equal((persisted.WhichOneof("event"), persisted.block_persisted.height), ("block_persisted", 0))
    events.cancel()
    late = next(world.chain.Subscribe())
    equal((late.standing.block_persisted, late.standing.rolled_back.blocks), (0, 1))


# --- jobs and holds


@test
def jobs_are_watched_and_listed(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    world.feed.mine(1288)
    world.prune()
    watched, seen, over = world.pruner.WatchJobs(), [], threading.Event()
    states = {number: name for name, number in world.client.enum("JobState").items()}

    def watch():
        for change in watched:
            seen.append((change.job.id, states[change.job.state], change.job.counts.deleted))
            if change.job.state == world.client.enum("JobState")["COMPLETED"] and change.job.counts.deleted:
                return over.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    world.feed.mine(1289)
    assert over.wait(60), seen
    identity, _, deleted = seen[-1]
    equal(deleted, 1)
    equal([state for job, state, _ in seen if job == identity][-2:], ["RUNNING", "COMPLETED"])
    [listed] = [job for job in world.pruner.ListJobs().jobs if job.id == identity]
    equal((listed.counts.deleted, listed.height, listed.safe_height), (1, 1289, 1289))
    assert listed.counts.bytes_freed > 0 and listed.ended_at >= listed.started_at >= listed.created_at, listed
    equal(len(world.pruner.ListJobs(limit=1).jobs), 1)
    fails(lambda: world.pruner.CancelJob(id=1_000_000), grpc.StatusCode.NOT_FOUND)
    fails(lambda: world.pruner.CancelJob(id=identity), grpc.StatusCode.FAILED_PRECONDITION)
    assert "height" in fails(lambda: world.pruner.Prune(height=0), grpc.StatusCode.INVALID_ARGUMENT).details()


@test
def a_hold_keeps_what_it_names_until_it_is_released(world):
    parent = world.parent_and_child()
    world.feed.mine(1001, [tx("child", [(parent["txid"], 0)])])
    hold = world.pruner.SetHold(name="export/nightly", owner="tests", keep_from=1289, reason="an export is under way").hold
    equal((hold.name, hold.keep_from, hold.kind), ("export/nightly", 1289, world.client.enum("HoldKind")["EXPORT"]))
    explained = world.kept_at(parent, 1289)
    equal(explained.reason, "held")
    assert "export/nightly" in explained.needs, explained.needs
    plan = world.pruner.Plan()
    equal((plan.records, dict(plan.retained), plan.decided_by), (0, {"held": 1}, "export/nightly"))
    [reorg, listed] = world.pruner.ListHolds().holds
    equal((reorg.name, listed.name, listed.decides), ("reorg-window", "export/nightly", True))
    world.pruner.RenewHold(name="export/nightly", keep_from=1290, expires=4_000_000_000)
    equal(world.pruner.Plan().records, 1)
    renewed = world.pruner.RenewHold(name="export/nightly", keep_from=0).hold
    equal((renewed.keep_from, renewed.expires), (0, 4_000_000_000))
    equal(world.pruner.Plan().records, 0)
    world.pruner.ReleaseHold(name="export/nightly")
    world.gone_at(parent, 1289)


@test
def a_bad_hold_is_refused_by_name(world):
    good = {"name": "mine", "owner": "tests", "reason": "because"}
    cases = [("name", "With Spaces"), ("name", "persister"), ("name", ""), ("owner", ""), ("reason", "x" * 513), ("expires", 1)]
    for field, value in cases:
        error = fails(lambda: world.pruner.SetHold(**{**good, field: value}), grpc.StatusCode.INVALID_ARGUMENT)
        assert error.details().startswith(f"{field}: "), error.details()
    fails(lambda: world.pruner.RenewHold(name="never set"), grpc.StatusCode.NOT_FOUND)
    fails(lambda: world.pruner.ReleaseHold(name="never set"), grpc.StatusCode.NOT_FOUND)
    equal(len(world.pruner.ListHolds().holds), 0)


# --- hostile input


@test
def malformed_input_is_refused_and_changes_nothing(world):
    for garbage in [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x00" * 100, os.urandom(1000) + b"\xff"]:
        try:
            world.utxo.raw("Create", garbage)
        except grpc.RpcError as error:
            equal(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        else:
            raise AssertionError(f"{garbage[:20]!r} was taken")
    cases = [
        (lambda: world.utxo.Get(txids=[digest(1), digest(2), digest(3), digest(4)[1:]]), "txids[3]: must be 32 bytes, is 31"),
        (lambda: world.utxo.Create(transactions=[{}], height=1), "transactions[0].transaction: is required"),
        (lambda: world.utxo.Create(), "height: is required"),
        (lambda: world.utxo.SetMined(txids=[], height=1), "block: is required"),
        (lambda: world.utxo.SetMined(txids=[], block={"block_id": 1}, height=1), "block.height: is required"),
        (lambda: world.utxo.SetMined(txids=[], block={"block_id": 1, "height": 1}, height=1), "block.on_longest_chain: is required"),
        (lambda: world.utxo.ListUnmined(limit=0), "limit: must be 1 to 10000, is 0"),
        (lambda: world.utxo.ListByAddress(), "owner: is required"),
        (lambda: world.utxo.ListByAddress(credential=b"short"), "credential: must be 28 bytes, is 5"),
        (lambda: world.chain.ApplyBlocks(blocks=[{"height": 1}]), "blocks[0].hash: must be 32 bytes, is 0"),
        (lambda: world.chain.RegisterConsumer(consumer=99), "consumer: 99 is not a known consumer"),
        (lambda: world.chain.SetState(state=99), "state: 99 is not a known state"),
        (lambda: world.pruner.Explain(txid=b""), "txid: must be 32 bytes, is 0"),
    ]
    for call, message in cases:
        equal(fails(call, grpc.StatusCode.INVALID_ARGUMENT).details(), message)
    unknown = world.client.channel.unary_unary("/sapwood.v1.Utxo/NoSuchMethod")
    fails(lambda: unknown(b""), grpc.StatusCode.UNAUTHENTICATED)
    admin = [("authorization", f"Bearer {os.environ['SAPWOOD_TOKEN']}")]
    fails(lambda: unknown(b"", metadata=admin), grpc.StatusCode.UNIMPLEMENTED)
    equal(world.utxo.GetCounts().records, 0)


@test
def an_oversized_batch_is_refused(world):
    txids = [digest(number) for number in range(10_001)]
    equal(len(world.utxo.Get(txids=txids[1:]).records), 10_000)
    error = fails(lambda: world.utxo.Get(txids=txids), grpc.StatusCode.INVALID_ARGUMENT)
    assert error.details().startswith("txids: has 10001 items, at most 10000"), error.details()
    large = tx("large", [])
    large["outputs"][0]["script"] = bytes(17 << 20)
    fails(lambda: world.create(large, 1), grpc.StatusCode.OUT_OF_RANGE)
    equal(world.record(large), None)
    large["outputs"][0]["script"] = bytes(4 << 20)
    world.create(large, 1)
    equal(len(world.record(large).outputs[0].output.script), 4 << 20)


@test
def tokens_are_asked_for(world):
    """Runs against a server with tokens; the one given is the admin's."""
    world.feed = Feed(world.client, 900)
    world.feed.mine(901)
    reader = Sapwood(world.address, token=os.environ["SAPWOOD_READ_TOKEN"])
    equal(reader.chain.GetStatus().applied.height, 901)
    fails(lambda: reader.pruner.SetEnabled(enabled=False), grpc.StatusCode.PERMISSION_DENIED)
    fails(lambda: Sapwood(world.address), grpc.StatusCode.UNAUTHENTICATED)
    fails(lambda: Sapwood(world.address, token="not-a-token-of-this-server"), grpc.StatusCode.UNAUTHENTICATED)
    equal(world.pruner.GetStatus().enabled, True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(TESTS))
    else:
        [name] = sys.argv[1:]
        the_world = World()
        TESTS[name](the_world)
        the_world.client.close()
        print(f"{name}: done")
