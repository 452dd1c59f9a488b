"""Models of random weights that all sides run: models.py CONFIG.json DIR LLAMA

DIR gets a Hugging Face folder and f32.gguf and bf16.gguf, made of it by the converter of the llama.cpp in LLAMA, if
that is not empty.
"""
import json
import os
import sys
from pathlib import Path


def folder(config, to):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**json.load(open(config)))).float().save_pretrained(to)


def gguf(source, of, dtype, to):
    sys.path[:0] = [source, source + "/gguf-py"]
    os.environ["NO_LOCAL_GGUF"] = "1"
    import gguf as g
    from conversion import ModelBase, get_model_class

    model = get_model_class(ModelBase.load_hparams(Path(of), False)["architectures"][0])

    def no_vocab(self):  # there is no tokenizer: ids are all that is fed
        self.gguf_writer.add_tokenizer_model("none")
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    model.set_vocab = no_vocab
    kind = {"f32": g.LlamaFileType.ALL_F32, "bf16": g.LlamaFileType.MOSTLY_BF16}[dtype]
    model(Path(of), kind, Path(to)).write()


def main():
    config, to, source = sys.argv[1:]
    folder(config, to)
    for dtype in ("f32", "bf16") if source else ():
        gguf(source, to, dtype, f"{to}/{dtype}.gguf")


main()
