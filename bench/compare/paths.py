"""Redistribution by three planners over the same pairs of layouts: bytes that a device receives.

  build/compare/venv/bin/python bench/compare/paths.py [--pairs N] [--vectors FILE] [MESH RANK]...

The environment is that of bench/compare/run. hyper (`hyper layout --batch`), the fixed order of HyperParallel (slice, all-to-all, gather; partial
sums first), and PyTorch's DTensor: what it plans by default, and its min-cost planner. Pairs are
those of all layouts of a tensor whose dims the mesh divides, with partial sums before but not after;
more than N are drawn by chance. Columns: geometric mean and worst of the planner's bytes over those of
hyper, share of pairs with the same bytes, pairs that move bytes where none need move, pairs without a
plan that leads to the layout, pairs cheaper than hyper's. --vectors checks the fixed order against
answers of the original.
"""
import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

NAMES = "abcdefgh"


# --- layouts: (entries, partial): a tuple of axes a dim, the first outermost; a frozenset of axes ---


def layouts(axes, rank, partial):
    """All layouts of `axes` axes on a tensor of this rank."""
    found = {(((),) * rank, frozenset())}
    todo = list(found)
    while todo:
        entries, waits = todo.pop()
        used = {a for e in entries for a in e} | waits
        for a in set(range(axes)) - used:
            more = [(entries[:d] + (entries[d] + (a,),) + entries[d + 1:], waits) for d in range(rank)]
            if partial:
                more.append((entries, waits | {a}))
            for l in more:
                if l not in found:
                    found.add(l)
                    todo.append(l)
    return sorted(found, key=lambda l: (l[0], sorted(l[1])))


def product(mesh, axes):
    return math.prod(mesh[a] for a in axes)


def part(mesh, shape, entries):
    return math.prod(shape) // product(mesh, [a for e in entries for a in e])


# --- hyper -------------------------------------------------------------------------------------------


def by_hyper(hyper, mesh, shape, pairs):
    def words(entries):
        return [[NAMES[a] for a in e] if e else "None" for e in entries]

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        for i, (a, b) in enumerate(pairs):
            q = {"id": str(i), "mesh": mesh, "names": list(NAMES[:len(mesh)]), "rank_list": None,
                 "shape": shape, "from": words(a[0]), "to": words(b[0])}
            if a[1]:
                q["partial"] = {NAMES[x]: "sum" for x in sorted(a[1])}
            f.write(json.dumps(q) + "\n")
        f.flush()
        lines = subprocess.run([hyper, "layout", "--batch", f.name], capture_output=True, text=True,
                               check=True).stdout.splitlines()
    return [json.loads(l)["bytes_per_rank"] for l in lines]


# --- the fixed order ---------------------------------------------------------------------------------


class Wrong(Exception):
    """The plan does not lead to the layout, or cannot be carried out."""


class FixedOrder:
    """Slices wherever they are possible, then all-to-alls, then gathers, and again."""

    def __init__(self, mesh, shape, start, to):
        self.mesh, self.shape, self.to = mesh, shape, to[0]
        self.real = [list(e) for e in start[0]]  # what is really held
        self.first = start[0]
        self.open = dict(enumerate(start[0]))  # what the algorithm thinks of dims that are not done
        self.bytes = 0.0
        for a in sorted(start[1]):
            self.reduce(a)
        self.run()
        if tuple(map(tuple, self.real)) != self.to:
            raise Wrong

    def held(self):
        return 4 * part(self.mesh, self.shape, self.real)

    # A dim of the target that is not the first is reduced into; the first is taken for none.
    def reduce(self, axis):
        n, dim = self.mesh[axis], next((d for d, e in enumerate(self.to) if axis in e), 0)
        if dim:
            self.bytes += self.held() * (n - 1) / n
            self.real[dim].append(axis)
            self.open[dim] += (axis,)
            self.first = tuple(map(tuple, self.real))
        else:
            self.bytes += self.held() * 2 * (n - 1) / n

    def split(self, dim, axes):
        if any(a in e for e in self.real for a in axes):
            raise Wrong
        self.real[dim] += axes

    def gather(self, dim, axes):
        if not axes or tuple(self.real[dim][-len(axes):]) != axes:
            raise Wrong
        self.bytes += self.held() * (product(self.mesh, axes) - 1)
        del self.real[dim][-len(axes):]

    def exchange(self, dim, other, axes):
        n = product(self.mesh, axes)
        if not axes or tuple(self.real[other][-len(axes):]) != axes:
            raise Wrong
        self.bytes += self.held() * (n - 1) / n
        del self.real[other][-len(axes):]
        self.real[dim] += axes

    def holder(self, axes):
        if axes not in self.first:
            raise Wrong
        return self.first.index(axes)

    def ends_with(self, axes):
        return any(len(e) > 1 and e[-len(axes):] == axes for e in self.open.values())

    def rest(self, have, want):
        """What is missing behind a beginning that is there already."""
        return want[len(have):] if have and len(want) > max(1, len(have)) and want[:len(have)] == have else None

    def slices(self):
        for d, have in list(self.open.items()):
            want, held = self.to[d], self.open.values()
            rest = self.rest(have, want)
            if have == want:
                del self.open[d]
            elif not have and want not in held and not self.ends_with(want):
                self.split(d, want)
                del self.open[d]
            elif rest and rest not in held:
                self.split(d, rest)
                del self.open[d]

    def exchanges(self):
        moved = False
        for d, have in list(self.open.items()):
            if d not in self.open:
                continue
            have, want, held = self.open[d], self.to[d], self.open.values()
            rest = self.rest(have, want)
            if have == want:
                del self.open[d]
            elif not have and want in held:
                other = self.holder(want)
                self.exchange(d, other, want)
                del self.open[d]
                self.open[other] = ()
                moved = True
            elif not have and self.ends_with(want):
                other = next((i for i, e in enumerate(self.first) if len(e) > 1 and e[-len(want):] == want), None)
                if other is None or not self.open.get(other):
                    raise Wrong
                self.exchange(d, other, want)
                del self.open[d]
                self.open[other] = self.open[other][:-len(want)]
                moved = True
            elif rest and rest in held:
                other = self.holder(rest)
                self.exchange(d, other, rest)
                del self.open[d]
                self.open[other] = ()
                moved = True
        return moved

    def gathers(self):
        for d, have in list(self.open.items()):
            want = self.to[d]
            if want and len(have) > 1 and want == have[:len(want)]:
                self.gather(d, have[len(want):])
                del self.open[d]
            elif have and have not in self.to:
                self.gather(d, have)
                if want:
                    self.open[d] = ()
                else:
                    del self.open[d]

    def run(self):
        for _ in range(64):
            if not self.open:
                return
            before = (dict(self.open), self.bytes, [list(e) for e in self.real])
            while self.open:
                inner = [list(e) for e in self.real]
                self.slices()
                while self.open and self.exchanges():
                    pass
                if inner == self.real:
                    break
            self.gathers()
            if self.open and before[1:] == (self.bytes, self.real):
                d = next(iter(self.open))
                self.gather(d, self.open[d])
                self.open[d] = ()
        raise Wrong


def by_fixed_order(mesh, shape, pairs):
    out = []
    for a, b in pairs:
        try:
            out.append(FixedOrder(mesh, shape, a, b).bytes)
        except Wrong:
            out.append(None)
    return out


def check_vectors(path):
    same = other = wrong = 0
    for line in open(path):
        v = json.loads(line)
        if 1 in v["mesh"]:
            continue  # what it does with axes of one device moves nothing
        index = {n: i for i, n in enumerate(v["names"])}

        def entries(l):
            names = [[e] if isinstance(e, str) else e for e in l]
            return tuple(tuple(index[n] for n in e if n != "None") for e in names)

        a = (entries(v["from"]), frozenset(index[n] for n in v.get("partial", {})))
        try:
            got = FixedOrder(v["mesh"], v["shape"], a, (entries(v["to"]), frozenset())).bytes
        except Wrong:
            wrong += 1
            continue
        if int(got + 1e-6) == v["bytes_per_rank"]:
            same += 1
        else:
            other += 1
            if other < 6:
                print("differs:", v["mesh"], v["from"], v.get("partial"), v["to"], got, v["bytes_per_rank"])
    print(f"fixed order against the original's answers: {same} the same, {other} other, {wrong} not carried out")


# --- PyTorch -----------------------------------------------------------------------------------------


class DTensor:
    def __init__(self, mesh, shape):
        import logging

        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import _redistribute
        from torch.testing._internal.distributed.fake_pg import FakeStore

        logging.disable(logging.WARNING)
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(mesh))
        self.r, self.sizes, self.shape = _redistribute, mesh, shape
        self.mesh = init_device_mesh("cpu", tuple(mesh), mesh_dim_names=tuple(NAMES[:len(mesh)]))
        for n in range(2, len(mesh) + 1):  # so that it may do several axes at once
            for axes in itertools.combinations(NAMES[:len(mesh)], n):
                self.mesh[axes]._flatten("_".join(axes))
        x = torch.empty(shape, device="meta")
        from torch.distributed.tensor._dtensor_spec import TensorMeta

        self.meta = TensorMeta(x.shape, x.stride(), x.dtype)

    def spec(self, l):
        from torch.distributed.tensor import Partial, Replicate, Shard
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry

        entries, waits = l
        placements = [Partial() if a in waits else Replicate() for a in range(len(self.sizes))]
        for d, e in enumerate(entries):
            for a in e:
                placements[a] = Shard(d)
        order = tuple(ShardOrderEntry(tensor_dim=d, mesh_dims=tuple(e)) for d, e in enumerate(entries) if e)
        return DTensorSpec(self.mesh, tuple(placements), tensor_meta=self.meta, shard_order=order,
                           use_strided_shard_as_shard_order=False)

    def plan(self, a, b, min_cost):
        src, dst = self.spec(a), self.spec(b)
        infos = self.r._gen_transform_infos_non_cached(src, dst, use_graph_based_transform=min_cost)
        infos = self.r._optimize_transform_infos(infos, self.mesh, src.placements, dst.placements)
        held, received = 4 * part(self.sizes, self.shape, a[0]), 0.0
        for i in infos:
            axes = getattr(i, "original_mesh_dims", (i.mesh_dim,))
            n = product(self.sizes, axes)
            kind = i._comm_type_key()
            before, after = i.src_dst_placements
            if kind == "all_gather":
                received += held * (n - 1)
            elif kind == "all_reduce":
                received += held * 2 * (n - 1) / n
            elif kind:
                received += held * (n - 1) / n
            if before.is_shard():
                held *= n
            if after.is_shard():
                held /= n
        assert held == 4 * part(self.sizes, self.shape, b[0]), (a, b, infos)
        return received


# --- the table ---------------------------------------------------------------------------------------


def compare(ours, theirs):
    """Geometric mean and worst of the ratio, share of pairs that cost the same, those that move bytes
    where none need move, and those without a plan."""
    ratios, equal, needless, none = [], 0, 0, 0
    for a, b in zip(ours, theirs):
        if b is None:
            none += 1
        elif a == 0:
            equal += b == 0
            needless += b > 0
        else:
            ratios.append(b / a)
            equal += abs(b / a - 1) < 1e-9
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1
    worst = max(ratios, default=1)
    done = len(ours) - none
    cheaper = sum(r < 1 - 1e-9 for r in ratios)
    return f"{mean:6.3f} {worst:6.2f} {100 * equal / max(done, 1):6.1f} % {needless:6d} {none:6d} {cheaper:6d}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=1000)
    p.add_argument("--vectors")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("question", nargs="*", help="MESH RANK ..., such as 2x2 3")
    o = p.parse_args()
    hyper = os.environ.get("HYPER", "build/hyper")
    if o.vectors:
        check_vectors(o.vectors)
    words = o.question or "2 3 2x2 3 2x2x2 3 2x2x2x2 3".split()
    print(f"{'mesh':9} rank  {'pairs':>6} of {'all':>7}  {'planner':12} "
          f"{'mean':>6} {'worst':>6} {'the same':>8} {'for 0':>6} {'none':>6} {'cheaper':>7}")
    for text, rank in zip(words[::2], map(int, words[1::2])):
        mesh = [int(n) for n in text.split("x")]
        shape = [1024 // math.prod(mesh) * math.prod(mesh)] * rank  # large: bytes, not latency, count
        before, after = layouts(len(mesh), rank, True), layouts(len(mesh), rank, False)
        pairs = [(a, b) for a in before for b in after if a != b]
        every = len(pairs)
        if every > o.pairs:
            pairs = random.Random(o.seed).sample(pairs, o.pairs)
        ours = by_hyper(hyper, mesh, shape, pairs)
        rows = [("fixed order", by_fixed_order(mesh, shape, pairs))]
        torch = DTensor(mesh, shape)
        rows.append(("DTensor", [torch.plan(a, b, False) for a, b in pairs]))
        rows.append(("min-cost", [torch.plan(a, b, True) for a, b in pairs]))
        for name, theirs in rows:
            print(f"{text:9} {rank:4d}  {len(pairs):6d} of {every:7d}  {name:12} {compare(ours, theirs)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
