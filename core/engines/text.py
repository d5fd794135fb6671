"""Between text and token ids: prompts in, responses and single tokens out."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import TemplateError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from core.engines.base import EngineError


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every id that ends a response: the generation config may name several."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        found.update(value if isinstance(value, list | tuple) else [] if value is None else [value])
    if not found:
        raise EngineError("the model names no end-of-sequence token: set eos_token_id in its generation_config.json")
    return sorted(found)


def check_room(prompts: Sequence[str], prompt_ids: Sequence[list[int]], max_new_tokens: int, limit: int | None) -> None:
    """Raises EngineError if a prompt and its longest response pass `limit` tokens; None: there is no limit."""
    longest = max(range(len(prompt_ids)), key=lambda index: len(prompt_ids[index]))
    used = len(prompt_ids[longest])
    if limit and used + max_new_tokens > limit:
        raise EngineError(
            f"sampling.max_new_tokens is {max_new_tokens}, but the model reads at most {limit} tokens and "
            f"the prompt {prompts[longest][:60]!r} takes {used}: lower it to {max(1, limit - used)}"
        )


class Texts:
    """A tokenizer as the engine uses it. Prompts come back, as tokens do: the ids of those and the texts of these are
    remembered. A `system_prompt` stands before every prompt of a chat model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, system_prompt: str | None = None):
        self.tokenizer = tokenizer
        self.system_prompt = system_prompt
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        if system_prompt is not None and not self.chat:
            raise EngineError(
                "system_prompt: the model has no chat template, so there is no place for one: leave it out, or write "
                "it into the prompts"
            )
        self.special = set(tokenizer.all_special_ids)
        self._prompts: dict[str, list[int]] = {}
        self._tokens: dict[int, str] = {}

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """The ids of each prompt; a tokenizer with a chat template gets it as the user's message."""
        if new := [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._prompts]:
            texts = [self._chat(prompt) for prompt in new] if self.chat else new
            encoded = self.tokenizer(texts, add_special_tokens=not self.chat)["input_ids"]
            for prompt, ids in zip(new, encoded, strict=True):
                if not ids:
                    raise EngineError(f"the prompt {prompt!r} has no tokens: every prompt needs at least one")
            self._prompts.update(zip(new, encoded, strict=True))
        return [list(self._prompts[prompt]) for prompt in prompts]

    def _chat(self, prompt: str) -> str:
        system = self.system_prompt
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": prompt})
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            words = " ".join(str(error).split())[:200]
            which = "" if system is None else "system_prompt: "
            raise EngineError(f"{which}the model's chat template refuses the prompt ({words})") from error
        if system is not None and system.strip() not in text:
            raise EngineError("system_prompt: the model's chat template leaves it out: write it into the prompts")
        return text

    def responses(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each response, special tokens left out."""
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def token(self, token_id: int) -> str:
        """The token's own text; a special token's name, and the vocabulary's piece for bytes that are no character."""
        if token_id not in self._tokens:
            self._tokens[token_id] = self._token(token_id)
        return self._tokens[token_id]

    def _token(self, token_id: int) -> str:
        piece = self.tokenizer.convert_ids_to_tokens(token_id) if token_id < len(self.tokenizer) else None
        if piece is None:
            return f"<{token_id}>"
        if token_id in self.special:
            return piece
        if piece.startswith("\u2581"):  # decoding one SentencePiece token alone would lose its leading space
            return piece.replace("\u2581", " ")
        text = self.tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
        return piece if not text or "\ufffd" in text else text
