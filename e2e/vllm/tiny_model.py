"""Writes a tiny Llama with random weights and a tokenizer of words; runs with the environment's Python.

The weights are drawn wider than usual: with the usual ones an answer hardly depends on the prompt's far end, and a
wrong KV cache would go unseen.
"""

import sys

SHAPES = {
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4},
    "small": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 8, "num_attention_heads": 4},
}
"""Tiny is for checks of answers. Small computes prompts long enough for their times to be those of an engine, and has
weights (24 MB) that fit into a processor's cache: a decode step would else take what neighbours leave of the memory."""

VOCABULARY = 512
CONTEXT = 4096
WIDTH_OF_WEIGHTS = 0.15
PAD, BEGIN, END = "<pad>", "<s>", "</s>"


def main(directory: str, shape: str) -> None:
    """Write model and tokenizer to a directory."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]
    from tokenizers.models import WordLevel  # type: ignore[import-not-found,unused-ignore]
    from tokenizers.pre_tokenizers import Whitespace  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(20)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        **SHAPES[shape],
        num_key_value_heads=SHAPES[shape]["num_attention_heads"] // 2,
        max_position_embeddings=CONTEXT,
        initializer_range=WIDTH_OF_WEIGHTS,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        dtype="float32",
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(directory)
    words = [PAD, BEGIN, END, *(f"w{number}" for number in range(VOCABULARY - 3))]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=PAD))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, unk_token=PAD
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
