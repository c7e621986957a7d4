"""torchtitan's model specification of any dense Qwen3, from the fields of its Hugging Face config.json."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn
from torchtitan.models.common import CosSinRoPE, Embedding, Linear
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import get_attention_config, make_ffn_config, make_gqa_config
from torchtitan.models.common.nn_modules import RMSNorm
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.models.qwen3.model import Qwen3Model, Qwen3TransformerBlock
from torchtitan.models.qwen3.parallelize import parallelize_qwen3
from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec

from crosstrain.config import ModelSection

_INIT_STD = 0.02


def qwen3_spec(model: ModelSection) -> Any:
    """A fresh `ModelSpec`; torchtitan's Trainer changes the one it is given."""
    normal = partial(nn.init.normal_, std=_INIT_STD)
    config = Qwen3Model.Config(
        vocab_size=model.vocab_size,
        dim=model.hidden_size,
        norm=_norm(model.hidden_size, model),
        enable_weight_tying=model.tie_word_embeddings,
        tok_embeddings=Embedding.Config(
            num_embeddings=model.vocab_size,
            embedding_dim=model.hidden_size,
            param_init={"weight": skip_param_init if model.tie_word_embeddings else normal},
        ),
        lm_head=Linear.Config(
            in_features=model.hidden_size, out_features=model.vocab_size, param_init=_linear_init(_INIT_STD)
        ),
        layers=[_layer(model) for _ in range(model.num_hidden_layers)],
    )
    return ModelSpec(
        name="qwen3",
        flavor="crosstrain",
        model=config,
        parallelize_fn=parallelize_qwen3,
        pipelining_fn=None,
        post_optimizer_build_fn=None,
        state_dict_adapter=Qwen3StateDictAdapter,
    )


def _layer(model: ModelSection) -> Any:
    rope = CosSinRoPE.Config(dim=model.head_dim, max_seq_len=model.max_position_embeddings, theta=model.rope_theta)
    attention = make_gqa_config(
        dim=model.hidden_size,
        n_heads=model.num_attention_heads,
        n_kv_heads=model.num_key_value_heads,
        head_dim=model.head_dim,
        wqkv_param_init=_linear_init(_INIT_STD),
        # What is added to the residual stream by every layer starts smaller, as torchtitan and Megatron have it.
        wo_param_init=_linear_init(_INIT_STD / (2 * model.num_hidden_layers) ** 0.5),
        inner_attention=_inner_attention(model),
        # Separate matrices are what Hugging Face names and what Muon orthogonalises; a fused one also has state-dict
        # hooks that gather it unsharded.
        fuse_qkv=False,
        rope=rope,
        qk_norm=_norm(model.head_dim, model),
    )
    return Qwen3TransformerBlock.Config(
        attention_norm=_norm(model.hidden_size, model),
        ffn_norm=_norm(model.hidden_size, model),
        attention=attention,
        feed_forward=make_ffn_config(
            dim=model.hidden_size,
            hidden_dim=model.intermediate_size,
            w1_param_init=_linear_init(_INIT_STD),
            w2w3_param_init=_linear_init(_INIT_STD),
        ),
    )


def _inner_attention(model: ModelSection) -> Any:
    # get_attention_config refuses "sdpa" for language models since it has no document masks; ours are not asked for any.
    return ScaledDotProductAttention.Config() if model.attention == "sdpa" else get_attention_config(model.attention)


def _norm(size: int, model: ModelSection) -> Any:
    return RMSNorm.Config(normalized_shape=size, eps=model.rms_norm_eps, param_init={"weight": nn.init.ones_})


def _linear_init(std: float) -> dict[str, Any]:
    return {"weight": partial(nn.init.normal_, std=std), "bias": nn.init.zeros_}
