"""neox-serve against transformers: scores of texts, greedy texts and stops, repetition penalties, replies to messages whose
contents are texts and parts, by the requests that lm-evaluation-harness, OpenAI's client and Megatron-LM's
text_generation_cli.py send. Random models; where `openai` is installed, also through it.

serve.py BIN_DIRECTORY
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import torch
from transformers import (GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast,
                          RepetitionPenaltyLogitsProcessor)

WORDS = "the of and a model night river stone Paris 42 naïve über 日本 runs, ends. Begins 🙂".split()
POSITIONS = 128


def models():
    yield "gpt_neox", GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=50277, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=0))
    yield "llama", LlamaForCausalLM(LlamaConfig(
        vocab_size=50277, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=160, max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=0))


# One that writes parts, as those of models with images do, and one that cannot.
TEMPLATES = {
    True: "{% for m in messages %}{{ m.role }}:{% if m.content is string %} {{ m.content }}{% else %}{% for part in m.content %}"
          "{% if part.type == 'text' %} [{{ part.text }}]{% endif %}{% endfor %}{% endif %};{% endfor %}"
          "{% if add_generation_prompt %}assistant:{% endif %}",
    False: "{% for m in messages %}{{ m.role + ': ' + m.content + ';' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"}


class Server:
    def __init__(self, programs, checkpoint, *options):
        self.process = subprocess.Popen([programs + "/neox-serve", checkpoint, "--listen", "0", "--set", "precision=fp32", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"on (http://\S+?),", line)
            if found:
                self.url = found[1]
                break
        else:
            sys.exit("neox-serve did not begin")
        self.log = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def ask(self, path, body, method="POST"):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"},
                                         method=method)
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as e:
            sys.exit(f"{path} {body}: {e.read().decode()}")

    def end(self):
        self.process.terminate()
        assert self.process.wait() == 0, self.process.returncode


def log_probabilities(model, tokens):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)


def greedy(model, tokens, count, repetition_penalty=1.0):
    """The likeliest tokens, and how near the second ones were at most."""
    tokens, new, gap = list(tokens), [], 1.0
    change = RepetitionPenaltyLogitsProcessor(repetition_penalty)
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1:].double()
        top = torch.log_softmax(change(torch.tensor([tokens]), logits), -1)[0].topk(2)
        gap = min(gap, float(top.values[0] - top.values[1]))
        new.append(int(top.indices[0]))
        tokens.append(new[-1])
    return new, gap


def check_scores(server, model, prompts):
    worst = 0.0
    answer = server.ask("/v1/completions", dict(prompt=prompts, max_tokens=1, temperature=0, logprobs=1, echo=True))
    for choice, tokens in zip(answer["choices"], prompts):
        expected = log_probabilities(model, tokens)
        scores = choice["logprobs"]
        assert len(scores["token_logprobs"]) == len(tokens) + 1, (len(tokens), len(scores["token_logprobs"]))
        for i in range(1, len(tokens)):
            worst = max(worst, abs(scores["token_logprobs"][i] - float(expected[i - 1, tokens[i]])))
            worst = max(worst, abs(max(scores["top_logprobs"][i].values()) - float(expected[i - 1].max())))
        worst = max(worst, abs(scores["token_logprobs"][-1] - float(expected[-1].max())))
    assert worst < 1e-4, worst
    return worst


def check_texts(server, model, tokenizer, prompts):
    """A text and the same through Megatron's form; returns how many were compared."""
    compared = 0
    for tokens in prompts:
        if len(tokens) + 10 > POSITIONS:
            continue
        new, gap = greedy(model, tokens, 10)
        if gap < 1e-4 or 0 in new:
            continue
        prompt = tokenizer.decode(tokens)
        expected = tokenizer.decode(new)
        choice = server.ask("/v1/completions", dict(prompt=prompt, max_tokens=10, temperature=0))["choices"][0]
        assert choice["text"] == expected, (prompt, choice["text"], expected)
        answer = server.ask("/api", dict(prompts=[prompt], tokens_to_generate=10, top_k=1), "PUT")
        assert answer["text"] == [prompt + expected], (answer, prompt + expected)
        stop = expected[len(expected) // 2:][:2]
        choice = server.ask("/v1/completions", dict(prompt=prompt, max_tokens=10, temperature=0, stop=stop))["choices"][0]
        assert choice["text"] == expected[:expected.index(stop)] and choice["finish_reason"] == "stop", (choice, expected, stop)
        new, gap = greedy(model, tokens, 10, 1.3)
        if gap > 1e-4 and 0 not in new and max(new) < len(tokenizer):
            body = dict(prompt=prompt, max_tokens=10, temperature=0, repetition_penalty=1.3)
            text = server.ask("/v1/completions", body)["choices"][0]["text"]
            assert text == tokenizer.decode(new), (prompt, text, tokenizer.decode(new))
        compared += 1
    return compared


def conversation(choose):
    def text():
        return " ".join(choose.choice(WORDS) for _ in range(choose.randint(1, 6)))

    def content():
        return text() if choose.random() < 0.3 else [{"type": "text", "text": text()} for _ in range(choose.randint(0, 3))]
    return [{"role": ("user", "assistant")[i % 2], "content": content()} for i in range(choose.choice([1, 3]))]


def check_chats(programs, checkpoint, model, tokenizer, directory, choose):
    """Replies to messages; parts are lines for a template that cannot write them. Returns how many were compared."""
    compared = 0
    for writes_parts, template in TEMPLATES.items():
        with open(directory + "/chat.jinja", "w") as file:
            file.write(template)
        server = Server(programs, checkpoint, "--chat-template", directory + "/chat.jinja")
        for _ in range(20):
            messages = conversation(choose)
            told = messages if writes_parts else [
                m if isinstance(m["content"], str) else m | {"content": "\n".join(part["text"] for part in m["content"])}
                for m in messages]
            text = tokenizer.apply_chat_template(told, chat_template=template, add_generation_prompt=True, tokenize=False)
            tokens = tokenizer(text)["input_ids"]
            new, gap = greedy(model, tokens, 10) if len(tokens) + 10 <= POSITIONS else ([], 0)
            if gap < 1e-4 or 0 in new:
                continue
            answer = server.ask("/v1/chat/completions", dict(messages=messages, max_tokens=10, temperature=0))
            assert answer["usage"]["prompt_tokens"] == len(tokens), (messages, answer, text)
            assert answer["choices"][0]["message"]["content"] == tokenizer.decode(new), (messages, answer, text)
            compared += 1
        server.end()
    return compared


def check_client(server, prompt):
    try:
        import openai
    except ImportError:
        return "without openai"
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    whole = client.completions.create(model="any", prompt=prompt, max_tokens=8, temperature=0).choices[0].text
    events = client.completions.create(model="any", prompt=prompt, max_tokens=8, temperature=0, stream=True)
    assert "".join(event.choices[0].text for event in events) == whole
    try:
        client.completions.create(model="any", prompt=prompt, temperature=-1)
        sys.exit("a temperature of -1 was taken")
    except openai.BadRequestError as e:
        assert "temperature is -1" in str(e), e
    return "also by openai " + openai.__version__


def main():
    programs = sys.argv[1]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.environ["NEOX_TEST_DATA"] + "/20B_tokenizer.json",
                                        bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    choose = random.Random(7)
    texts = [" ".join(choose.choice(WORDS) for _ in range(choose.randint(1, 60))) for _ in range(40)]
    prompts = [tokenizer(text)["input_ids"][:POSITIONS] for text in texts]
    prompts.append([choose.randrange(50254) for _ in range(POSITIONS)])
    worst, compared, chats = 0.0, 0, 0
    torch.manual_seed(3)
    for name, model in models():
        for p in model.parameters():
            if p.dim() > 1:
                p.data.mul_(4)
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory + "/hf")
            tokenizer.save_pretrained(directory + "/hf")
            subprocess.run([programs + "/neox-convert", "--to", "neox.cpp", directory + "/hf", directory + "/ours"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            server = Server(programs, directory + "/ours")
            worst = max(worst, check_scores(server, model, prompts))
            compared += check_texts(server, model, tokenizer, prompts)
            said = check_client(server, texts[0])
            server.end()
            chats += check_chats(programs, directory + "/ours", model, tokenizer, directory, choose)
    assert compared > 30 and chats > 40, (compared, chats)
    print(f"scores of {2 * len(prompts)} texts differ by at most {worst:.1e}, {compared} greedy texts and {chats} replies are equal, {said}")


main()
