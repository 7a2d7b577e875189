"""The families of models that have a home in transformers: what each can be, and the names that it uses.
Every table is read in both directions: from left to right on the way out, right to left on the way in."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

ACTIVATIONS = {"silu": "swiglu", "relu2": "relu2", "gelu": "gelu"}  # theirs: ours
ACTIVATIONS |= {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class Family:
    """One model_type. `needs`: the values of our settings that it can express. `form`: ours that an export
    brings into this form without changing the model (gains of one, biases of zero, a norm made part of the
    table). `fixed`: theirs that have one value here; `defaults`: theirs where a file leaves them out."""
    model_type: str
    architecture: str
    needs: dict[str, tuple]
    form: dict[str, Any]
    fixed: dict[str, Any]
    defaults: dict[str, Any]
    settings: dict[str, str]  # ours: theirs; where there are several, they agree
    layers: str  # what stands before a layer's number
    modules: dict[str, str]  # ours: theirs; where there are several, ours holds their rows in turn
    turn: Callable[[str, Any, int], Any] = lambda name, tensor, d_head: tensor  # its own inverse

    def names(self, name: str) -> list[str]:
        """Where a parameter of ours is found: blocks.0.attention.qkv.weight has three places in Llama."""
        *block, module, kind = re.fullmatch(r"(?:blocks\.(\d+)\.)?(.+)\.(\w+)", name).groups()
        layer = f"{self.layers}.{block[0]}." if block[0] else ""
        kind = "weight" if kind == "table" else kind
        return [f"{layer}{their}.{kind}" for their in self.modules[module].split()]


def transposed(name: str, tensor: Any, d_head: int) -> Any:
    """GPT-2 keeps its Linear weights as (inputs, outputs)."""
    return tensor.mT if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else tensor


def halves_swapped(name: str, tensor: Any, d_head: int) -> Any:
    """NanoChat turns the other way: as ours does when the halves of every head's q and k are swapped."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    return tensor.reshape(-1, 2, d_head // 2, tensor.size(-1)).flip(1).reshape(tensor.shape)


PLAIN = {
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "d_model": "hidden_size",
    "d_head": "head_dim", "d_ff": "intermediate_size", "context_length": "max_position_embeddings",
    "norm_eps": "rms_norm_eps", "tie_embeddings": "tie_word_embeddings", "mlp": "hidden_act",
}
LLAMA = Family(
    "llama", "LlamaForCausalLM",
    needs={"position.name": ("rope",), "model.norm": ("rmsnorm",), "model.mlp": ("swiglu",)}
    | {"model.qk_norm": (False,), "model.bigram_embedding": (False,)},
    form={"norm_weight": True, "embed_norm": False}, fixed={},
    defaults={"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False},
    settings=PLAIN | {"bias": "attention_bias mlp_bias"}, layers="model.layers",
    modules={
        "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
        "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
        "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm",
        "attention.out": "self_attn.o_proj",
        "mlp.gate_up": "mlp.gate_proj mlp.up_proj", "mlp.down": "mlp.down_proj",
    },
)
QWEN3 = replace(
    LLAMA, model_type="qwen3", architecture="Qwen3ForCausalLM", settings=PLAIN,
    needs=LLAMA.needs | {"model.qk_norm": (True,), "model.bias": (False,)},
    fixed={"attention_bias": False, "use_sliding_window": False},
)
NANOCHAT = replace(
    QWEN3, model_type="nanochat", architecture="NanoChatForCausalLM", form={}, turn=halves_swapped,
    needs=QWEN3.needs | {"model.mlp": ("relu2", "gelu", "gelu_tanh")}
    | {"model.norm_weight": (False,), "model.embed_norm": (True,)},
    fixed={"attention_bias": False, "final_logit_softcapping": None},
    defaults=LLAMA.defaults | {"final_logit_softcapping": 15.0},
    modules=LLAMA.modules | {"mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"},
)
GPT2 = Family(
    "gpt2", "GPT2LMHeadModel",
    needs={"position.name": ("learned",), "model.norm": ("layernorm",), "model.qk_norm": (False,)}
    | {"model.mlp": ("gelu_tanh", "gelu", "relu2"), "model.embed_norm": (False,)}
    | {"model.bigram_embedding": (False,)},
    form={"norm_weight": True, "bias": True}, layers="transformer.h", turn=transposed,
    fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    defaults={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    settings={
        "n_layers": "n_layer", "n_heads": "n_head", "d_model": "n_embd", "d_ff": "n_inner",
        "context_length": "n_positions", "norm_eps": "layer_norm_epsilon",
        "tie_embeddings": "tie_word_embeddings", "mlp": "activation_function",
    },
    modules={
        "embed": "transformer.wte", "position": "transformer.wpe", "norm": "transformer.ln_f",
        "head": "lm_head", "attention_norm": "ln_1", "mlp_norm": "ln_2", "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
    },
)
FAMILIES = {family.model_type: family for family in (QWEN3, LLAMA, NANOCHAT, GPT2)}
