"""Writes a small tokenizer of bytes and common pairs, so that none is downloaded; runs with the clients' Python."""

import sys

MARKS = ("<s>", "</s>")


def main(directory: str) -> None:
    """Write the tokenizer to a directory."""
    from tokenizers import (  # type: ignore[import-not-found,unused-ignore]
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found,unused-ignore]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(MARKS)
    )
    with open(__file__, encoding="utf-8") as text:
        tokenizer.train_from_iterator(text, trainer)
    marks = dict(zip(("bos_token", "eos_token"), MARKS, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
