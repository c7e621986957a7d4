"""The corpus's tokenizer: loaded or trained, put into one canonical file, and used for text in and tokens out.

Documents are encoded as plain text: what looks like a special token in a document is spelled out in bytes, nothing is
added before or after, nothing is cut or padded. So the end-of-text token stands between documents and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from crosstrain.corpus.manifest import TOKENIZER
from crosstrain.domain.plural import counted
from crosstrain.errors import IntegrityError, UsageError

END_OF_TEXT = "<|endoftext|>"
_USUAL_NAMES = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|im_end|>")


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A canonical tokenizer.json.

    Attributes:
        content: JSON with sorted keys and no white space, so that equal tokenizers are equal files.
        vocab_size: the largest token id plus one.
        eot: id of the end-of-text token.
    """

    content: bytes
    vocab_size: int
    eot: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def dtype(self) -> str:
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"


def load_tokenizer(path: Path, eot: str | None) -> TokenizerFile:
    """Reads a tokenizer file from anywhere.

    Raises:
        UsageError: missing, not a tokenizer file, or without an end-of-text token.
    """
    hint = "give the tokenizer.json of a Hugging Face model, or train one with --vocab N"
    try:
        text = path.read_text(encoding="utf-8")
        parsed = _parse(text)
    except FileNotFoundError:
        raise UsageError(f"There is no tokenizer file at {path}.", hint) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a tokenizer file: {error}.", hint) from error
    return _canonical(parsed, text, eot, str(path))


def train_tokenizer(texts: Iterable[str], vocab: int) -> TokenizerFile:
    """A byte-level BPE; the same texts give the same file.

    Raises:
        UsageError: the texts do not hold enough different strings for `vocab` tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    if (found := tokenizer.get_vocab_size()) < vocab:
        raise UsageError(
            f"The text repeats too little for {counted(vocab, 'token')}: training ends at {found}.",
            f"give --vocab {found} or less, or more text",
        )
    return _canonical(tokenizer, tokenizer.to_str(), END_OF_TEXT, "the trained tokenizer")


class Encoder:
    """Text to token ids, by the content of a tokenizer file."""

    def __init__(self, content: bytes) -> None:
        self._tokenizer = _plain(_parse(content.decode()))
        self.vocab_size = _vocab_size(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids


def encode(directory: Path, text: str) -> list[int]:
    """Token ids of `text` in the tokenizer of the corpus at `directory`.

    Raises:
        UsageError: there is no corpus.
        IntegrityError: its tokenizer is not readable.
    """
    ids: list[int] = _of_corpus(directory).encode(text, add_special_tokens=False).ids
    return ids


def decode(directory: Path, tokens: Sequence[int]) -> str:
    """The text of token ids; end-of-text tokens are left out, and bytes that are no character become U+FFFD.

    Raises:
        UsageError: there is no corpus.
        IntegrityError: its tokenizer is not readable.
    """
    text: str = _of_corpus(directory).decode(list(tokens), skip_special_tokens=True)
    return text


def _of_corpus(directory: Path) -> Tokenizer:
    path = directory / TOKENIZER
    try:
        state = path.stat()
        return _read_once(path.resolve(), state.st_mtime_ns, state.st_size)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{directory} holds no corpus: it has no {TOKENIZER}.", "make one with `crosstrain corpus build`"
        ) from None
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} is not a tokenizer file: {error}.", "build or copy the corpus again") from error


@lru_cache(maxsize=4)
def _read_once(path: Path, modified_ns: int, size: int) -> Tokenizer:  # noqa: ARG001 - a rebuilt corpus is another key
    return _plain(_parse(path.read_text(encoding="utf-8")))


def _parse(text: str) -> Tokenizer:
    """Raises ValueError, where the library raises a bare Exception."""
    try:
        return Tokenizer.from_str(text)
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ValueError(str(error)) from None


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _canonical(tokenizer: Tokenizer, text: str, eot: str | None, origin: str) -> TokenizerFile:
    content = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return TokenizerFile(content, _vocab_size(tokenizer), _end_of_text(tokenizer, eot, origin))


def _vocab_size(tokenizer: Tokenizer) -> int:
    # Ids may have gaps, so the number of tokens is not enough.
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _end_of_text(tokenizer: Tokenizer, eot: str | None, origin: str) -> int:
    for name in _USUAL_NAMES if eot is None else (eot,):
        if (token := tokenizer.token_to_id(name)) is not None:
            return int(token)
    special = list(_special(tokenizer))
    raise UsageError(
        f"{origin} has no end-of-text token named {eot or ' or '.join(_USUAL_NAMES)}.",
        f"name it with --eot; its special tokens are {', '.join(special[:12]) or 'none'}",
    )


def _special(tokenizer: Tokenizer) -> Iterator[str]:
    added = tokenizer.get_added_tokens_decoder()
    return (token.content for _, token in sorted(added.items()) if token.special)
