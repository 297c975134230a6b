#!/usr/bin/env python3
"""Peer of tests/boundaries_test.cc: transformers with a mask of blocks and positions that start again with each document.
Writes tests/golden/boundaries_sketches.json; the shapes, weights, tokens and sketches are those of model.py, but that every
sixth token is the end of a document. Positions and masks follow Megatron-LM's loop over the ends of documents.

  boundaries.py
"""
import torch

import model as peers

RUNS = [(0, True, True), (0, True, False), (0, False, True), (1, True, True)]  # case, attention, positions
END = 0


def masks_and_positions(tokens):
    """Megatron-LM's way: hidden [T, T] and positions [T] of a sample."""
    T = tokens.numel()
    visible = torch.tril(torch.ones(T, T))
    positions = torch.arange(T)
    before = 0
    for i in positions[tokens == END].tolist():
        visible[i + 1:, :i + 1] = 0
        positions[i + 1:] -= i + 1 - before
        before = i + 1
    return visible < 0.5, positions


def run(case, attention, positions):
    tokens = peers.tokens(case, 0)
    tokens[tokens % 6 == 0] = END
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    both = [masks_and_positions(sample) for sample in inputs]
    # Without a mask transformers takes positions that start again for the beginnings of documents.
    future = torch.ones(inputs.shape[1], inputs.shape[1]).triu(1) > 0
    hidden = torch.stack([mask if attention else future for mask, _ in both]).unsqueeze(1)
    given = dict(attention_mask=torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, float("-inf")))
    if positions:
        given["position_ids"] = torch.stack([places for _, places in both])
    model = peers.peer(case, torch.float64)
    logits = model(input_ids=inputs, **given).logits
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    losses.mean().backward()
    tensors = {"token_losses": losses.view(inputs.shape)} | {n: p.grad for n, p in peers.named(model)}
    return case | dict(attention=attention, positions=positions, loss=losses.mean().item(),
                       sketches={n: peers.sketch(n, t) for n, t in tensors.items()})


def main():
    torch.set_num_threads(1)
    peers.softmax_in_double()
    cases = [run(peers.CASES[index], attention, positions) for index, attention, positions in RUNS]
    assert len({case["loss"] for case in cases}) == len(cases), "a mask or positions without effect"
    peers.write_json(peers.GOLDEN / "boundaries_sketches.json", dict(cases=cases))


if __name__ == "__main__":
    main()
