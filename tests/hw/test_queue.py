"""The registered queue and the arbiter behave as what they stand for, cycle by cycle."""

import random
from itertools import product

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.sim import Simulator
from slowly import mostly_slow

from trainwright_hw.stream.block_queue import BlockQueue
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.stream.round_robin import RoundRobin


@mostly_slow(
    "depth, flags, counted",
    product((2, 3, 8, 16), (0, 3), (False, True)),
    lambda depth, flags, counted: depth < 16 and counted == (flags > 0),
)
@pytest.mark.parametrize("write, read", [(0.5, 0.5), (0.9, 0.3), (0.3, 0.9), (1.0, 1.0)])
def test_registered_queue_behaves_as_sync_fifo(depth, write, read, flags, counted):
    m = Module()
    m.submodules.ours = ours = RegisteredQueue(width=8, depth=depth, counted=counted, flags=flags)
    m.submodules.theirs = theirs = SyncFIFO(width=8, depth=depth)
    rng = random.Random(depth)

    async def bench(ctx):
        for _ in range(600):
            word, w_en, r_en = rng.randrange(256), rng.random() < write, rng.random() < read
            w_en &= not counted or ctx.get(theirs.w_rdy)
            for queue in (ours, theirs):
                ctx.set(queue.w_data, word)
                ctx.set(queue.w_en, w_en)
                ctx.set(queue.r_en, r_en)
            for name in ("w_rdy", "r_rdy", "level"):
                assert ctx.get(getattr(ours, name)) == ctx.get(getattr(theirs, name)), name
            if ctx.get(ours.r_rdy):
                assert ctx.get(ours.r_data) == ctx.get(theirs.r_data)
            else:
                assert ctx.get(ours.r_data[:flags]) == 0
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("depth", [2, 13, 32])
@pytest.mark.parametrize("pause", [0, 3, 40])
def test_bursts_as_of_a_buffered_fifo(depth, pause):
    """Words come in bursts, as credit was taken for them: the same cycle by cycle."""
    m = Module()
    m.submodules.ours = ours = BlockQueue(width=16, depth=depth)
    m.submodules.theirs = theirs = SyncFIFOBuffered(width=16, depth=depth + 1)
    rng = random.Random(pause)

    async def bench(ctx):
        level, words, coming, waiting = 0, 0, 0, 0
        for _ in range(1500):
            if not coming and rng.random() < 0.5:
                coming = rng.randint(0, depth - level)
            w_en = coming > 0
            waiting = waiting - 1 if waiting else rng.random() < 0.1 and pause
            r_en = not waiting
            for queue in (ours, theirs):
                ctx.set(queue.w_data, words % 65536)
                ctx.set(queue.w_en, w_en)
                ctx.set(queue.r_en, r_en)
            assert ctx.get(ours.r_rdy) == ctx.get(theirs.r_rdy)
            if ctx.get(ours.r_rdy):
                assert ctx.get(ours.r_data) == ctx.get(theirs.r_data)
            words, coming = words + w_en, coming - w_en
            level += w_en - (r_en and ctx.get(ours.r_rdy))
            await ctx.tick()
        assert words > 100

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("clients", [1, 2, 3, 5])
def test_round_robin_grants_client_after_last(clients):
    arbiter = RoundRobin(clients)
    rng = random.Random(clients)

    async def bench(ctx):
        last = clients - 1  # so that client 0 is first
        for _ in range(400):
            asking = rng.randrange(1 << clients)
            ctx.set(arbiter.requests, asking)
            order = [(last + 1 + n) % clients for n in range(clients)]
            first = next((client for client in order if asking >> client & 1), None)
            assert ctx.get(arbiter.grant) == (0 if first is None else 1 << first)
            last = last if first is None else first
            await ctx.tick()

    m = Module()
    m.domains.sync = ClockDomain()  # a single client needs no register
    m.submodules.arbiter = arbiter
    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
