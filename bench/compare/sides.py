"""The sides of a comparison: `hyper bench`, run anew for every turn, and peers, which wait for their next turn."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("COMPARE_BUILD", "build/compare")
HYPER = os.environ.get("HYPER", "build/hyper")
CONFIGS = os.environ.get("HYPER_DATA", "../shared/data") + "/configs"
LLAMA = os.environ.get("COMPARE_LLAMA", "")
LLAMAFACTORY = os.environ.get("COMPARE_LLAMAFACTORY", "")
WARM_UP = 2


class Failed(Exception):
    pass


def environment(threads, **more):
    """Threads pinned, one a core, as hyper's are; nothing is fetched from the net."""
    fixed = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "HF_HUB_OFFLINE": "1",
             "TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_CACHE_DIR": os.path.abspath(BUILD + "/inductor")}
    return dict(os.environ, **dict(fixed, **more))


def model(name):
    """The folder of a model with random weights, which is made once."""
    folder = f"{BUILD}/models/{name}"
    made = [f"{folder}/model.safetensors"] + [f"{folder}/{t}.gguf" for t in ("f32", "bf16") if LLAMA]
    if not all(map(os.path.exists, made)):
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([sys.executable, f"{HERE}/models.py", f"{CONFIGS}/{name}.json", folder, LLAMA], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


def hyper(kind, *words, launch=(), **more):
    """The lines of `hyper bench KIND`."""
    out = subprocess.run([HYPER, *launch, "bench", kind, *map(str, words), "--json"], capture_output=True, text=True,
                         env=dict(os.environ, **more))
    if out.returncode:
        raise Failed(out.stderr.strip())
    return [json.loads(line) for line in out.stdout.splitlines()]


class Peer:
    """A process that prints a line when it is ready, and one for each turn that it is asked for."""

    def __init__(self, words, threads, **more):
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.said, text=True, env=environment(threads, **more))
        self.about = None

    def read(self):
        line = self.process.stdout.readline()
        if not line.startswith("{") or not line.rstrip().endswith("}"):
            self.process.communicate()
            self.said.seek(0)
            raise Failed(" ".join(self.said.read().split())[-300:] or "no answer")
        return json.loads(line)

    def tell(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()

    def answer(self):
        self.about = self.about or self.read()["peer"]
        return self.read()

    def ask(self, steps):
        self.tell(steps)
        return self.answer()

    def close(self):
        self.process.communicate()


def torch(kind, how, model, batch, seq, dtype, threads, **more):
    words = (kind, how, model, batch, seq, dtype, threads)
    return Peer([sys.executable, f"{HERE}/peer_torch.py", *words], threads, **more)


def llama(kind, model, batch, seq, dtype, threads):
    return Peer([f"{BUILD}/llama/peer_llama", kind, f"{model}/{dtype}.gguf", batch, seq, threads], threads)
