"""Jobs in several processes that are joined by gloo, for tests of what ranks do together."""

import gc
import multiprocessing
import os
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SERVER = multiprocessing.get_context("forkserver")  # processes begin as copies of one that has imported these
SERVER.set_forkserver_preload(["torch", "pytest", "ordinal_entropy.tasks.age.metrics"])


def run(job, world):
    """What ``job(rank, world)``, a function of a module, returns on each of ``world`` processes."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = world, os.path.join(folder, "store"), job, folder
        mp.start_processes(_start, arguments, nprocs=world, start_method="forkserver")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(world)]


def streamed(cases):
    """What metrics give on two ranks, in batches: one has so many first rows, the other those that are left, or none.

    All of them in the same two processes, which take longer to begin than to compute.

    Args:
        cases: metric, predictions, targets, the rows of a batch, and the numbers of first rows to try.

    Returns:
        Of each case the scores, for each number of first rows on each rank.
    """
    ranks = run(partial(_streamed, cases=cases), 2)
    return [[scores for own in ranks for scores in own[number]] for number in range(len(cases))]


def _streamed(rank, world, cases):
    return [[_scores(rank, first, *case) for first in firsts] for *case, firsts in cases]


def _scores(rank, first, metric, predictions, targets, batch):
    metric.reset()
    start, stop = ((0, first), (first, len(targets)))[rank]
    for place in range(start, max(stop, start + 1), batch):  # no rows are an update too
        metric.update(*(part[place : min(place + batch, stop)] for part in (predictions, targets)))
    return metric.compute()


def _start(rank, world, store, job, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.save(job(rank, world), Path(results) / f"{rank}.pt")
    gc.collect()  # DDP's threads end before their process group does
    dist.barrier()
    dist.destroy_process_group()
