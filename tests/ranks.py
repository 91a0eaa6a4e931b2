"""Ranks for the tests: processes with a gloo group that run one function each and send back what it
returns.
"""

import faulthandler
import multiprocessing
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

# A server that has imported everything once and forks the ranks: starting python and torch costs
# seconds, a fork does not. It has used no threads, so that nothing hangs in its children.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["ranks", "evalgrad", "torch.distributed.fsdp", "torch.distributed.device_mesh"]
)
# seconds: ranks wait for each other, the test for the ranks; only a hang comes near them
PATIENCE, TIMEOUT = 120.0, 300.0


def run(world, function, *args):
    """What ``function(rank, world, *args)`` returned on each rank; a string with the traceback
    where it raised, None if killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        pairs = [CONTEXT.Pipe(duplex=False) for _ in range(world)]
        processes = [
            CONTEXT.Process(
                target=_rank, args=(rank, world, f"{folder}/store", pairs[rank][1], function, args)
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        for _, sender in pairs:
            sender.close()
        try:
            return [_received(receiver) for receiver, _ in pairs]
        finally:
            for process in processes:
                process.join(1)
                process.kill()


def _received(receiver: Connection):
    if not receiver.poll(TIMEOUT):
        return "hangs"
    try:
        return receiver.recv()
    except EOFError:
        return None


def _rank(rank, world, store, sender, function, args):
    faulthandler.enable()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo",
        init_method=Path(store).as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=PATIENCE),
    )
    try:
        result = function(rank, world, *args)
    except Exception:
        result = traceback.format_exc()
    sender.send(result)
    sender.close()
    dist.destroy_process_group()
