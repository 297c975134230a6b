"""Compares labels for fine-tuning with the ways of GPT-NeoX's preprocess_data_with_chat_template.py, which tokenizes a
conversation again with each message (transformers' apply_chat_template on Jinja templates of the same meaning), and of its
preprocess_data_with_mask.py.

  chat.py LABELS_TOOL [--conversations 1000]

Where characters on both sides of a border of messages have other tokens together than apart (white space with white space, "]"
with "'s", in GPT-2's rules also "\\n\\n" with a word), ours must be those of the messages apart; the tool's often are those of
no text. Everywhere else both must be equal, token by token. Contents as lists of parts and messages of ShareGPT's form must give
the same, and a template that writes parts what it writes in transformers.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

EOD, MASKED = "<|endoftext|>", -100

# Written for this comparison: the same texts as configs/chat_templates.yml.
LOOP = "{% for m in messages %}"
ALTERNATE = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}"
KNOWN = "{% if m.role not in ROLES %}{{ raise_exception('role') }}{% endif %}"


def known(roles):
    return KNOWN.replace("ROLES", repr(roles))


JINJA = {
    "chatml": LOOP + known(["system", "user", "assistant", "tool"]) +
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "llama2": "{% set s = '' %}{% set rest = messages %}{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set s = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}{% endif %}{% for m in rest %}" + ALTERNATE +
    known(["user", "assistant"]) + "{% set c = m.content %}{% if loop.first %}{% set c = s + c %}{% endif %}"
    "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3": "{{ bos_token }}" + LOOP + known(["system", "user", "assistant", "ipython"]) +
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "mistral": "{{ bos_token }}" + LOOP + ALTERNATE + known(["user", "assistant"]) +
    "{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content + eos_token }}{% endfor %}",
    "zephyr": LOOP + known(["system", "user", "assistant"]) +
    "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "plain": LOOP + known(["system", "user", "assistant"]) +
    "{{ m.role.capitalize() + ': ' + m.content | trim }}"
    "{{ eos_token if m.role == 'assistant' else '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
}
# Writes parts itself, as templates of models with images do.
OF_PARTS = (LOOP + known(["system", "user", "assistant"]) + "<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for part in m.content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}{% endfor %}{% endif %};{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
# Writes tools as JSON in front, and calls, as templates of models that call tools do.
OF_TOOLS = ("{% if tools %}tools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n{% endif %}" + LOOP +
            "<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}[{{ call.function.name }}({{ call.function.arguments | tojson }})]"
            "{% endfor %};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>",
           "<|user|>", "<|assistant|>", "<|system|>", "[INST]", "[/INST]"]
WORDS = ["the", "quick", " brown", " fox", "jumps ", "42", ".", ", ", "\n", "!?", "é", "漢字", "😀", "  ", "\n\n", "<|im_end|>", "'s"]


def content(source, clean):
    text = "".join(source.choice(WORDS) for _ in range(source.choice([0, 1, 3, 12, 60])))
    return text.strip() if clean else text


def conversation(source, style, clean):
    chat = []
    if source.random() < 0.4 and style != "mistral":
        chat.append({"role": "system", "content": content(source, clean)})
    alternate = style in ("llama2", "mistral") or source.random() < 0.7
    for i in range(source.choice([1, 2, 2, 3, 4, 7])):
        role = ("user", "assistant")[i % 2] if alternate else source.choice(["user", "assistant"])
        chat.append({"role": role, "content": content(source, clean)})
    if source.random() < 0.05:
        chat.append({"role": source.choice(["human", "system", "user"]), "content": "x"})
    return chat


def in_parts(source, chat):
    """The same contents, some as a part for each line."""
    return [m if source.random() < 0.3 else m | {"content": [{"type": "text", "text": line} for line in m["content"].split("\n")]}
            for m in chat]


def as_share_gpt(source, chat):
    names = {"user": "human", "assistant": "gpt", "tool": "observation"}
    return [m if m["role"] in names.values() or source.random() < 0.5
            else {"from": names.get(m["role"], m["role"]), "value": m["content"]} for m in chat]


def tools(source):
    """The descriptions of some functions, or none."""
    def parameter():
        return {"type": source.choice(["string", "integer", "array"]), "description": content(source, False), "enum": ["é", 1.5, None, True]}
    return source.choice([None, [], *([[{"type": "function", "function": {
        "name": f"f{i}", "description": content(source, False),
        "parameters": {"type": "object", "properties": {name: parameter() for name in ("z", "a", "q\"<&'")}, "required": ["z"]}}}
        for i in range(n)] for n in (1, 2, 5)])])


def with_calls(source, chat):
    return [m | {"tool_calls": [{"type": "function", "function": {"name": "f0", "arguments": {"z": content(source, False), "a": 2}}}]}
            if m["role"] == "assistant" and source.random() < 0.5 else m for m in chat]


def tokenizers(directory):
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    source = random.Random(1)
    made.train_from_iterator(
        [content(source, False) + "User: Assistant: user assistant system\n" for _ in range(2000)],
        trainers.BpeTrainer(vocab_size=600, special_tokens=[EOD], show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    plain = Path(directory, "plain")
    rich = Path(directory, "rich")
    for path, special, bos, eos in ((plain, [], EOD, EOD), (rich, SPECIAL, "<s>", "</s>")):
        path.mkdir()
        made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
        made.save(str(path / "tokenizer.json"))
        (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos, "eos_token": {"content": eos}}))
    return {path: PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), bos_token=bos, eos_token=eos)
            for path, bos, eos in ((plain, EOD, EOD), (rich, "<s>", "</s>"))}


def marked_tokenizers(directory):
    """Those that write a space in front of texts, as LLaMA's; of what their model has no token for they take bytes."""
    captured = json.loads((Path(__file__).parents[1] / "golden/fallback_tokenizers.json").read_text())
    for form in ("LLaMA 2", "Mistral 0.3", "always"):
        parts = captured[form]["parts"]
        added = [token for token in parts["added_tokens"] if token["content"] in ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")]
        path = Path(directory, form)
        path.mkdir()
        (path / "tokenizer.json").write_text(json.dumps(parts | {"version": "1.0", "model": captured["model"], "added_tokens": added,
                                                                 "truncation": None, "padding": None, "post_processor": None}))
        (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
        yield path, PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), bos_token="<s>", eos_token="</s>")


def ids_of(tokenizer, chat, ask=False):
    return tokenizer(tokenizer.apply_chat_template(chat, add_generation_prompt=ask, tokenize=False),
                     add_special_tokens=False)["input_ids"]


def again_with_each_message(tokenizer, chat, learn, role="assistant"):
    """The tool's way; raises where the template does."""
    if learn == "no-mask":
        return ids_of(tokenizer, chat), []
    eos = tokenizer.eos_token_id
    if learn == "for-rm":
        tokens = ids_of(tokenizer, chat)
        return tokens + [eos, eos], [MASKED] * (len(tokens) + 1) + [eos]
    tokens, labels = [], []
    for i, message in enumerate(chat):
        last = i == len(chat) - 1
        new = ids_of(tokenizer, chat[:i + 1], not last and chat[i + 1]["role"] == role)[len(tokens):]
        tokens += new
        learnt = message["role"] == role and (last or learn != "only-last")
        labels += new if learnt else [MASKED] * len(new)
    return tokens + [eos], labels + [eos if labels[-1] != MASKED else MASKED]


def ids_behind(tokenizer, before, text, marked):
    """Of what goes on behind a text, whose last token is not shared: behind a character that merges with nothing."""
    if not before or not marked:
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    ends = [token for token in tokenizer.get_added_vocab() if before.endswith(token)]
    mark = ends[0] if ends else "\x01"
    both, alone = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (mark + text, mark))
    return both[len(alone):]


def ends_turn(chat, i, learn, role="assistant"):
    """By Jinja what is learnt is apart, and no more."""
    last = i == len(chat) - 1
    asked = not last and chat[i + 1]["role"] == role
    return last or (asked and i == len(chat) - 2 if learn == "only-last" else asked or chat[i]["role"] == role)


def message_by_message(tokenizer, chat, learn, marked, by_file, role="assistant"):
    """Whether something merges across a border, and the tokens and labels of the messages apart."""
    texts = [tokenizer.apply_chat_template(chat[:i + 1], tokenize=False,
                                           add_generation_prompt=i + 1 < len(chat) and chat[i + 1]["role"] == role)
             for i in range(len(chat))]
    tokens, labels, merged, before = [], [], False, ""
    for i, message in enumerate(chat):
        if by_file and not ends_turn(chat, i, learn):
            continue
        new = ids_behind(tokenizer, before, texts[i][len(before):], marked)
        tokens += new
        learnt = message["role"] == role and (i == len(chat) - 1 or learn != "only-last")
        labels += new if learnt else [MASKED] * len(new)
        merged |= tokens != tokenizer(texts[i], add_special_tokens=False)["input_ids"]
        before = texts[i]
    eos = tokenizer.eos_token_id
    return merged, tokens + [eos], labels + [eos if labels[-1] != MASKED else MASKED]


def mask_before(tokens, pattern):
    for i in range(len(tokens) - len(pattern) + 1):
        if tokens[i:i + len(pattern)] == pattern:
            return [MASKED] * (i + len(pattern)) + tokens[i + len(pattern):]
    return tokens


def run(tool, flags, lines):
    command = [tool, "--input", "-", "--output-prefix", "unused", *flags]
    done = subprocess.run(command, input="".join(line + "\n" for line in lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Comparison:
    def __init__(self, tool):
        self.tool, self.failed = tool, 0

    def say(self, name, wrong, counts):
        print(f"{'equal' if not wrong else 'DIFFERENT'}: {name}: {counts}")
        for line in wrong[:3]:
            print("   ", line)
        self.failed += bool(wrong)

    def chat(self, path, tokenizer, style, learn, chats, clean, marked=False, by_file=False, given=None):
        """given: the chats in another form for the tool."""
        tokenizer.chat_template = JINJA.get(style, OF_PARTS)
        file = Path(path, style + ".jinja")
        file.write_text(tokenizer.chat_template)
        flags = ["--tokenizer-path", str(path), "--chat-template", str(file) if by_file else style] + ([] if learn == "replies" else ["--" + learn])
        got = run(self.tool, flags, [json.dumps(chat) for chat in given or chats])
        wrong, refused, borders, spoilt = [], 0, 0, 0
        for chat, ours in zip(chats, got, strict=True):
            try:
                tokens, labels = again_with_each_message(tokenizer, chat, learn)
            except Exception:
                refused += 1
                if "error" not in ours:
                    wrong.append(f"not refused: {chat}")
                continue
            if ours == {"tokens": tokens, "labels": labels}:
                continue
            borders += 1
            text = tokenizer.apply_chat_template(chat, tokenize=False) + tokenizer.eos_token
            spoilt += tokenizer.decode(tokens, clean_up_tokenization_spaces=False) != text
            merged, apart, labels_apart = message_by_message(tokenizer, chat, learn, marked, by_file)
            if not (merged or by_file) or learn in ("for-rm", "no-mask") or ours != {"tokens": apart, "labels": labels_apart}:
                wrong.append(f"{chat}\n      ours {ours}\n      want {tokens} {labels}")
        self.say(f"{style}{'.jinja' if by_file else ''} {learn} {path.name} {'trimmed' if clean else 'any'}{' in parts' if given else ''}", wrong,
                 f"{len(chats)} conversations, {refused} refused, {borders} with merged borders, of which the tool spoils {spoilt}")

    def tools(self, path, tokenizer, chats, tools):
        tokenizer.chat_template = OF_TOOLS
        file = Path(path, "tools.jinja")
        file.write_text(OF_TOOLS)
        flags = ["--tokenizer-path", str(path), "--chat-template", str(file), "--no-mask", "--tools-key", "tools"]
        got = run(self.tool, flags, [json.dumps({"chat": chat, "tools": of}) for chat, of in zip(chats, tools, strict=True)])
        wrong = []
        for chat, of, ours in zip(chats, tools, got, strict=True):
            text = tokenizer.apply_chat_template(chat, tools=of, tokenize=False)
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
            if ours != {"tokens": tokens, "labels": []}:
                wrong.append(f"{chat} {of}\n      ours {ours}\n      want {tokens}")
        self.say(f"tools {path.name}", wrong, f"{len(chats)} conversations, {sum(bool(of) for of in tools)} with tools")

    def mask(self, path, tokenizer, texts, pattern, append):
        flags = ["--tokenizer-path", str(path), "--mask-before-token", ",".join(map(str, pattern))]
        got = run(self.tool, flags + (["--append-eod"] if append else []), [json.dumps(text) for text in texts])
        wrong, masked = [], 0
        for text, ours in zip(texts, got, strict=True):
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
            if append and tokens:
                tokens.append(tokenizer.convert_tokens_to_ids(EOD))
            labels = mask_before(tokens, pattern)
            masked += labels[:1] == [MASKED]
            if ours != {"tokens": tokens, "labels": labels}:
                wrong.append(f"{text!r} {ours} {labels}")
        self.say(f"mask before {pattern} {'with' if append else 'without'} end", wrong, f"{len(texts)} texts, {masked} masked")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tool")
    options.add_argument("--conversations", type=int, default=1000)
    args = options.parse_args()
    source = random.Random(5)
    compare = Comparison(args.tool)
    with tempfile.TemporaryDirectory() as directory:
        made = tokenizers(directory)
        for path, tokenizer in made.items():
            for style in JINJA:
                for clean in (True, False):
                    chats = [conversation(source, style, clean) for _ in range(args.conversations // 10)]
                    for learn in ("replies", "only-last", "for-rm", "no-mask"):
                        for by_file in (False, True):
                            compare.chat(path, tokenizer, style, learn, chats, clean, by_file=by_file)
                chats = [conversation(source, style, True) for _ in range(args.conversations // 10)]
                given = [as_share_gpt(source, in_parts(source, chat)) for chat in chats]
                for by_file in (False, True):
                    compare.chat(path, tokenizer, style, "replies", chats, True, by_file=by_file, given=given)
            chats = [in_parts(source, conversation(source, "parts", True)) for _ in range(args.conversations // 10)]
            given = [as_share_gpt(source, chat) for chat in chats]
            for learn in ("replies", "only-last", "no-mask"):
                compare.chat(path, tokenizer, "parts", learn, chats, True, by_file=True, given=given)
        for path, tokenizer in made.items():
            chats = [with_calls(source, conversation(source, "tools", False)) for _ in range(args.conversations // 5)]
            compare.tools(path, tokenizer, chats, [tools(source) for _ in chats])
        for path, tokenizer in marked_tokenizers(directory):
            for style in JINJA:
                chats = [conversation(source, style, True) for _ in range(args.conversations // 10)]
                for learn in ("replies", "only-last", "no-mask"):
                    compare.chat(path, tokenizer, style, learn, chats, True, marked=True)
        for path, tokenizer in made.items():
            texts = [content(source, False) for _ in range(args.conversations)]
            fox = tokenizer(" fox", add_special_tokens=False)["input_ids"]
            for pattern in (fox, [fox[-1]] * 2, [tokenizer.convert_tokens_to_ids(EOD)]):
                compare.mask(path, tokenizer, texts, pattern, True)
                compare.mask(path, tokenizer, texts, pattern, False)
    return 1 if compare.failed else 0


if __name__ == "__main__":
    sys.exit(main())
