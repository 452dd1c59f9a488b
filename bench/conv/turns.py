"""conv_step next to torch_step.py, A B A B in one run: turns.py CONV_STEP [--rounds N] [--threads N] [--without compile]

Printed for each model: milliseconds of a step, the median over rounds, and PyTorch's over ours, the median of the ratios
within a round with their spread; the same of processor time, which a busy machine disturbs less.  The limit is the
step's flops, or bytes, at the peaks measured at the start.
"""
import argparse
import os
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("ours")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--without", default="", choices=["", "compile"])
a = parser.parse_args()
STEPS = {"lenet": 50, "resnet": 4}
TICK = os.sysconf("SC_CLK_TCK")


class Side:
    def __init__(self, command, head):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.head = [self.process.stdout.readline().split() for _ in range(head)]

    def run(self, steps):
        before = self.processor_time()
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        seconds = float(self.process.stdout.readline().split()[0])
        return seconds, (self.processor_time() - before) / steps

    def processor_time(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK


def compare(model):
    peers = ["eager"] if a.without else ["eager", "compile"]
    ours = Side([a.ours, model, str(a.threads)], 2)
    sides = [ours] + [Side([sys.executable, f"{here}/torch_step.py", model, p, str(a.threads)], 0) for p in peers]
    for side in sides:
        side.run(3)
    times = [[side.run(STEPS[model]) for side in sides] for _ in range(a.rounds)]
    (flops, moved), (_, peak, bandwidth) = [[x if x == "limits" else float(x) for x in line] for line in ours.head]
    limit = max(flops / peak, moved / bandwidth)
    print(f"{model}: a training step, {a.threads} threads, {a.rounds} rounds")
    print(f"  {'limit':16}{limit * 1e3:9.3f} ms   {flops / 1e9:.2f} GFLOP, {moved / 1e6:.1f} MB")
    for i, name in enumerate(["hyperparallel"] + [f"torch {p}" for p in peers]):
        line = f"  {name:16}"
        for kind in range(2):
            line += f"{statistics.median(t[i][kind] for t in times) * 1e3:9.3f} ms"
            line += " of processors" if kind else ""
            if i:
                ratios = sorted(t[i][kind] / max(t[0][kind], 1e-9) for t in times)
                line += f", {statistics.median(ratios):.2f}x ours ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line)
    for side in sides:
        side.process.stdin.close()
        side.process.wait()


for name in STEPS:
    compare(name)
print(f"load {os.getloadavg()[0]:.1f}")
