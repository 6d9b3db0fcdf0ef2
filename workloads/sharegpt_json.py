"""ShareGPT conversations as text: lengths and content with any tokenizer.

A JSON list of conversations {id, conversations: [{from, value}, …]}, as ShareGPT V3 and the data
sets made like it are published; from is human or user, gpt or assistant, or system. There are no
arrival times, so they are generated. A message's tokens are those of its text alone: no start
token and no chat template. A request is a human's message with the model's reply after it:

    turns: first    the message and the reply that open a conversation; one that opens in
                    another way is dropped and counted
    turns: every    every such pair, and its prompt is the whole conversation up to there.
                    Conversations arrive as the arrival process says; each later turn arrives
                    think_s after the turn before has finished

Content is token ids, so prompts that begin with the same text share it. A reply to an earlier
turn is the output of that turn, wherever it stands in later prompts. Messages that are part of no
pair are text of the history.
The tokenizer is a file tokenizer.json as published with a model; reading it needs the package
tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from workloads import checks
from workloads.content import ContentBuilder, IntColumn, own_output, token_runs
from workloads.documents import read_document
from workloads.generator import Generator
from workloads.intake import Reading, shown
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, MAX_S
from workloads.trace import MAX_TOKENS, NANOSECONDS, Trace, TraceError
from workloads.tracefile import check_rows

HUMAN = ("human", "user")
MODEL = ("gpt", "assistant", "chatgpt", "bing", "bard")
ROLES = (*HUMAN, *MODEL, "system")
OUTSIDE = "dropped: conversations that do not open with a message and its reply"
COLUMNS = (
    Column("prompt", "prompt_tokens", LENGTH),
    Column("reply", "output_tokens", LENGTH),
)


@dataclass(frozen=True)
class ShareGPTJSON(Generator):
    """ShareGPT conversations as text: path, tokenizer (a tokenizer.json), arrivals.

    turns is "first" or "every"; think_s the seconds from a turn's end to the next turn of every.
    max_total_tokens drops requests whose prompt and output have more together; the paper's
    ShareGPT workload is first turns of at most 2048.
    limit keeps the first conversations (None: all); on_bad_row is "error" or "drop";
    zero_tokens says whether a request without a prompt or an output is to "drop" or "one" token.
    """

    path: str
    tokenizer: str
    arrivals: Mapping[str, object]
    turns: Literal["first", "every"] = "first"
    think_s: float = 0.0
    max_total_tokens: int | None = None
    limit: int | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    zero_tokens: Literal["drop", "one"] = "drop"

    kind: ClassVar[str] = "sharegpt_json"

    def __post_init__(self) -> None:
        check_rows(self.path, self.limit, self.on_bad_row)
        if not isinstance(self.tokenizer, str) or not self.tokenizer:
            raise ValueError(f"tokenizer: must be the name of a file, got {self.tokenizer!r}")
        checks.one_of("turns", self.turns, ["first", "every"])
        checks.number("think_s", self.think_s, high=MAX_S)
        if self.max_total_tokens is not None:
            checks.whole("max_total_tokens", self.max_total_tokens, 2, MAX_TOKENS)
        checks.one_of("zero_tokens", self.zero_tokens, ["drop", "one"])
        self.process()

    def load(self, seed: int) -> Trace:
        """The conversations' requests; the seed decides the times."""
        rows = self._read()
        rows.zeros(self.zero_tokens)
        if self.max_total_tokens is not None:
            total = rows.fields["prompt_tokens"] + rows.fields["output_tokens"]
            is_kept = total <= self.max_total_tokens
            if not is_kept.all():
                rows.notes["dropped: beyond max_total_tokens"] += int((~is_kept).sum())
                rows.take(is_kept)
        _, conversation = np.unique(rows.fields["session"], return_inverse=True)
        count = int(conversation.max(initial=-1)) + 1
        rows.fields["arrival_ns"] = self.arrival_times_ns(count, seed)[conversation]
        if self.turns == "first":
            for name in ("session", "parent", "think_ns"):
                del rows.fields[name]
        return rows.to_trace()

    def _read(self) -> Rows:
        encode = tokenizer_of(self.tokenizer)
        document = read_document(self.path)
        if not isinstance(document, list):
            raise TraceError(f"{self.path}: is not a JSON list; accepted: a list of conversations")
        conversations = document[: self.limit]
        reading = Reading(self.path, COLUMNS, self.on_bad_row, place="conversation")
        if cut := len(document) - len(conversations):
            reading.notes["cut: conversations beyond limit"] += cut
        requests = _Requests(reading, self.turns)
        for number, conversation in enumerate(conversations, 1):
            messages = messages_of(conversation)
            if isinstance(messages, str):
                reading.bad_row(number, messages, "conversation not accepted")
            else:
                requests.take(number, messages, encode)
        return requests.rows(round(self.think_s * NANOSECONDS))


class Message(NamedTuple):
    """Who said what."""

    is_human: bool
    is_reply: bool  # the model's, to a human's message right before
    text: str


def messages_of(conversation: Any) -> list[Message] | str:
    """The messages of a conversation, or what is wrong with it."""
    entries = conversation.get("conversations") if isinstance(conversation, dict) else None
    if not isinstance(entries, list):
        return "is no conversation; accepted: an object with a list 'conversations'"
    messages: list[Message] = []
    for entry in entries:
        role, text = (entry.get(k) if isinstance(entry, dict) else None for k in ("from", "value"))
        if role not in ROLES:
            return f"from is {shown(role)}; accepted: {', '.join(ROLES)}"
        if not isinstance(text, str) or not _is_unicode(text):
            return f"value is {shown(text)}; accepted: text"
        is_reply = role in MODEL and bool(messages) and messages[-1].is_human
        messages.append(Message(role in HUMAN, is_reply, text))
    return messages


def _is_unicode(text: str) -> bool:
    """JSON may hold half of a surrogate pair, which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Encode(Protocol):
    """A tokenizer as it is used here."""

    def __call__(self, texts: Sequence[str]) -> list[IntColumn]: ...


def tokenizer_of(path: str) -> Encode:
    """The token ids of texts. Raises TraceError without the package or a readable file."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra that only this format needs
    except ImportError:
        raise TraceError(
            f"{path}: reading a tokenizer needs the package tokenizers; "
            "install it with pip install 'kvsim[tokenizers]'"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the package raises no narrower class
        detail = shown(str(error))
        raise TraceError(f"{path}: is not a readable tokenizer.json: {detail}") from None

    def encode(texts: Sequence[str]) -> list[IntColumn]:
        encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    return encode


class _Requests:
    """Takes one conversation after the other."""

    def __init__(self, reading: Reading, turns: str) -> None:
        self._reading = reading
        self._is_first_only = turns == "first"
        self._content = ContentBuilder()
        self._links: list[tuple[int, int]] = []  # conversation and parent of each request

    def take(self, number: int, messages: list[Message], encode: Encode) -> None:
        if self._is_first_only:
            messages = messages[:2]
            if len(messages) < 2 or not messages[1].is_reply:
                self._reading.notes[OUTSIDE] += 1
                return
        history = np.empty((0, 3), np.int64)
        num_tokens, parent = 0, -1
        for message, ids in zip(messages, encode([m.text for m in messages]), strict=True):
            runs = token_runs(ids)
            if message.is_reply:
                self._reading.add_row(number, [num_tokens, len(ids)])
                request = self._content.add_cells(history, num_tokens)
                self._links.append((number, parent))
                parent = request
                runs = np.array([[own_output(request), 0, len(ids)]], np.int64)
            history = np.concatenate([history, runs])
            num_tokens += len(ids)

    def rows(self, think_ns: int) -> Rows:
        rows = self._reading.rows()
        conversation, parent = np.array(self._links, np.int64).T
        rows.fields["session"], rows.fields["parent"] = conversation.copy(), parent.copy()
        rows.fields["think_ns"] = np.full(len(rows), think_ns)
        rows.content = self._content.build()
        rows.has_output_identity = True
        return rows
