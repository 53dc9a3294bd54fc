"""Architectures compute what their papers say, on small numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.causal import turned
from slipstream.forecast.trace.architectures.convolutions import Branches, SqueezeExcite, conv_norm
from slipstream.forecast.trace.architectures.efficient import InvertedBlock, InvertedSize
from slipstream.forecast.trace.architectures.experts import Experts
from slipstream.forecast.trace.architectures.faces import MarginSoftmax, PartialFc
from slipstream.forecast.trace.architectures.recommendation import DLRM, NeuMF, WideDeep
from slipstream.forecast.trace.architectures.text_to_text import Stack, TextSize
from slipstream.forecast.trace.architectures.transformer import SelfAttention, TransformerSize
from slipstream.forecast.trace.architectures.translation import (
    TransformerXL,
    Translator,
    sinusoids,
)

close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)


def filled(module: nn.Module, seed: int = 0) -> nn.Module:
    """Return a module in evaluation mode whose parameters are small random numbers."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.3, generator=draw)
    return module.eval()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Return random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rotary_embeddings_turn_pairs_of_numbers_by_their_angles():
    places, frequencies = torch.arange(5.0), torch.tensor([1.0, 0.1])
    angles = torch.cat([places[:, None] * frequencies] * 2, dim=1)
    x = drawn(2, 3, 5, 6)
    found = turned(x, (angles.cos(), angles.sin()))
    pairs = torch.complex(x[..., :2], x[..., 2:4]) * torch.exp(1j * angles[:, :2])
    close(found[..., :4], torch.cat([pairs.real, pairs.imag], dim=-1))
    assert torch.equal(found[..., 4:], x[..., 4:])
    whole = turned(x[..., :4], (angles.cos(), angles.sin()))
    close(whole, found[..., :4])


def test_sinusoids_have_the_frequencies_of_the_paper():
    found = sinusoids(torch.tensor([0.0, 1.0, 7.0]), 6).numpy()
    rates = 10000.0 ** (-np.arange(0, 6, 2) / 6)
    angles = np.array([[0.0], [1.0], [7.0]]) * rates
    np.testing.assert_allclose(found, np.hstack([np.sin(angles), np.cos(angles)]), atol=1e-6)


@pytest.mark.parametrize(("batch", "tokens", "experts", "active"), [(2, 4, 4, 2), (1, 3, 3, 1)])
def test_experts_in_balance_give_what_each_token_chose(
    batch: int, tokens: int, experts: int, active: int
):
    module = filled(Experts(experts, 5, experts, active))
    # Token t chooses expert t and the experts after it, so all experts get equally many tokens.
    module.router.weight.data = torch.eye(experts)
    rows = torch.stack([torch.roll(torch.linspace(2, -2, experts), t) for t in range(tokens)])
    x = rows.expand(batch, -1, -1).contiguous()
    expected = torch.zeros_like(x)
    for sample in range(batch):
        for token in range(tokens):
            row = x[sample, token]
            shares, chosen = row.softmax(-1).topk(active)
            for share, expert in zip(shares / shares.sum(), chosen.tolist(), strict=True):
                inner = functional.silu(row @ module.gate[expert]) * (row @ module.up[expert])
                expected[sample, token] += share * (inner @ module.down[expert])
    close(module(x), expected)


def test_experts_have_equally_many_tokens_where_these_are_no_multiple():
    x = drawn(1, 3, 4)
    assert filled(Experts(4, 5, 4, 2))(x).shape == x.shape


@pytest.mark.parametrize("shared", [4, 2, 1])
def test_heads_attend_as_their_formula_says(shared: int):
    size = TransformerSize(hidden=8, layers=1, heads=4, key_value_heads=shared)
    module, x = filled(SelfAttention(size, causal=True)), drawn(2, 5, 8)
    parts = module.qkv(x).view(2, 5, -1, 2)
    q, k, v = parts.split([4, shared, shared], dim=2)
    k, v = (part.repeat_interleave(4 // shared, dim=2) for part in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(2)
    scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
    close(module(x), module.proj(mixed.flatten(2)))


def test_attention_that_writes_scores_gives_what_the_fused_one_does():
    fused, apart = (
        filled(
            SelfAttention(TransformerSize(hidden=8, layers=1, heads=2, fused=each), causal=False)
        )
        for each in (True, False)
    )
    x = drawn(2, 5, 8)
    close(fused(x), apart(x))


def test_faces_are_compared_with_a_margin():
    embeddings, labels = drawn(3, 4), torch.tensor([0, 2, 4])
    module = filled(MarginSoftmax(4, 5))
    unit = functional.normalize(module.weight.double(), dim=1).detach().numpy()
    cosines = functional.normalize(embeddings.double()).numpy() @ unit.T
    # ArcFace, equation 3: a margin of 0.5 and a scale of 64.
    for row, label in enumerate(labels.tolist()):
        cosines[row, label] = math.cos(math.acos(cosines[row, label]) + 0.5)
    scores = 64 * cosines
    own = scores[np.arange(3), labels.numpy()]
    expected = np.mean(np.log(np.exp(scores - own[:, None]).sum(axis=1)))
    assert module(embeddings, labels).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("ranks", [1, 2])
def test_shared_out_centres_have_the_loss_and_gradient_of_whole_ones(ranks: int):
    labels = torch.tensor([0, 2, 1])
    found = []
    for module in (PartialFc(4, 5 * ranks, ranks=ranks, scale=4.0), MarginSoftmax(4, 5, scale=4.0)):
        module.weight.data[:5] = drawn(5, 4, seed=2)
        embeddings = drawn(3, 4).requires_grad_()
        loss = module(embeddings, labels)
        loss.backward()
        assert embeddings.grad is not None
        found.append((loss.detach(), embeddings.grad))
    # With equal faces on all ranks, the mean loss and the gradients are those of one rank.
    close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


def test_a_share_of_the_centres_is_rounded_up():
    assert MarginSoftmax(2, 11, sampled=0.1).num_sampled == 2
    module = PartialFc(2, 11, ranks=2, sampled=0.5)
    assert (module.num_centres, module.num_sampled) == (6, 3)
    loss = MarginSoftmax(2, 11, sampled=0.1)(drawn(3, 2), torch.tensor([0, 1, 1]))
    assert loss.shape == ()


@pytest.mark.parametrize(("drop", "training"), [(0.0, True), (0.4, False), (0.4, True)])
def test_a_block_that_is_skipped_for_some_samples_counts_more_for_the_rest(
    drop: float, training: bool
):
    torch.manual_seed(3)
    size = InvertedSize(inputs=3, expanded=6, outputs=3, squeezed=2, drop=drop)
    module, x = filled(InvertedBlock(size, nn.SiLU)), drawn(64, 3, 4, 4)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 0.0
    module.train(training)
    with torch.no_grad():
        added, main = module(x) - x, module.main(x)
    kept = added.flatten(1).abs().sum(1) > 0
    scale = 1 / (1 - drop) if training else 1.0
    close(added[kept], main[kept] * scale)
    assert int(kept.sum()) == 64 if not (drop and training) else 25 < int(kept.sum()) < 52


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(3, 3, 2), (3, 4, 1), (3, 3, 1)])
def test_blocks_add_their_input_where_it_has_the_size(inputs: int, outputs: int, stride: int):
    size = InvertedSize(inputs=inputs, expanded=6, outputs=outputs, stride=stride)
    module, x = filled(InvertedBlock(size, nn.ReLU6)), drawn(2, inputs, 4, 4)
    own = x if (inputs, stride) == (outputs, 1) else 0
    close(module(x), own + module.main(x))


def test_convolutions_keep_the_size_unless_they_have_a_stride():
    x = drawn(2, 3, 8, 9)
    shapes: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
        (lambda: conv_norm(3, 6), (2, 6, 8, 9)),
        (lambda: conv_norm(3, 6, (1, 7)), (2, 6, 8, 9)),
        (lambda: conv_norm(3, 6, 5, 2), (2, 6, 4, 5)),
        (lambda: conv_norm(3, 6, 3, padding=0, groups=3), (2, 6, 6, 7)),
        (lambda: Branches(conv_norm(3, 6), conv_norm(3, 2, 3)), (2, 8, 8, 9)),
    ]
    for make, shape in shapes:
        assert make()(x).shape == shape
    assert (conv_norm(3, 6)(x) >= 0).all()
    assert (conv_norm(3, 6, activation=None)(x) < 0).any()
    assert [name for name, _ in conv_norm(3, 6).named_parameters()] == [
        "0.weight", "1.weight", "1.bias",
    ]  # fmt: skip


def test_channels_are_scaled_by_what_their_means_say():
    module, x = filled(SqueezeExcite(4, 2)), drawn(2, 4, 3, 3)
    first, second = module.scale[1], module.scale[3]
    means = x.mean((2, 3))
    hidden = torch.relu(means @ first.weight.flatten(1).T + first.bias)
    gates = torch.sigmoid(hidden @ second.weight.flatten(1).T + second.bias)
    close(module(x), x * gates[:, :, None, None])


def test_dlrm_multiplies_each_pair_of_vectors():
    module = filled(DLRM([5, 6, 7], 4, dense=2, bottom=(3, 4), top=(8, 1)))
    # Four numbers and six pairs make ten columns, padded to 16.
    assert (module.padding, module.top[0].in_features) == (6, 16)
    dense, rows = drawn(2, 2), torch.tensor([[0, 1, 2], [4, 5, 6]])
    numbers = module.bottom(dense)
    vectors = [numbers, *(table(rows[:, n]) for n, table in enumerate(module.tables))]
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(4) for j in range(i)]
    x = torch.cat([numbers, torch.stack(pairs, 1), torch.zeros(2, 6)], dim=1)
    close(module(dense, rows), module.top(x))
    assert isinstance(module.top[-1], nn.Linear)


def test_wide_and_deep_are_added():
    module = filled(WideDeep(9, wide_vocabulary=4, width=3, hidden=5, layers=2, fields=2, dense=1))
    assert module.wide.weight.shape == (4, 1)
    wide, deep, dense = torch.tensor([[0, 3]]), torch.tensor([[8, 1]]), drawn(1, 1)
    x = torch.cat([module.table.weight[8], module.table.weight[1], dense[0]])
    expected = module.score(module.deep(x)) + module.wide.weight[0] + module.wide.weight[3]
    close(module(wide, deep, dense)[0], expected)
    assert WideDeep(9, width=2, hidden=2, layers=1).wide.weight.shape == (9, 1)


def test_neumf_multiplies_factors_beside_its_layers():
    module = filled(NeuMF(5, 6, 3, (8, 4, 2)))
    user, item = torch.tensor([4]), torch.tensor([5])
    hidden = module.mlp(torch.cat([module.users.weight[4], module.items.weight[5]]))
    multiplied = module.user_factors.weight[4] * module.item_factors.weight[5]
    close(module(user, item)[0], module.score(torch.cat([multiplied, hidden])))
    assert module.users.weight.shape == (5, 4)


@pytest.mark.parametrize("writes", [True, False])
def test_a_decoder_of_t5_sees_what_was_written_before_and_all_that_was_read(writes: bool):
    size = TextSize(
        hidden=8, layers=2, decoder_layers=2, heads=2, head=3, inner=6, vocabulary=9, buckets=4
    )
    stack = filled(Stack(size, 2, writes=writes))
    x, memory = drawn(1, 6, 8), drawn(1, 3, 8, seed=2) if writes else None
    late, other = x.clone(), None if memory is None else memory + 1
    late[:, 3] += 1
    with torch.no_grad():
        before, after = stack(x, memory), stack(late, memory)
        changed = ((before - after).abs().amax(-1) > 1e-6)[0].tolist()
        assert changed == [not writes or place >= 3 for place in range(6)]
        assert torch.equal(stack(x, other), before) == (not writes)


def test_transformer_xl_remembers_what_each_block_was_given():
    size = TransformerSize(hidden=8, layers=3, heads=2, inner=8, vocabulary=200_005, positions=4)
    model = filled(TransformerXL(size))
    tokens, targets = torch.tensor([[1, 2, 3, 4]]), torch.zeros(1, 4, dtype=torch.int64)
    memory = drawn(3, 1, 4, 8)
    with torch.no_grad():
        loss, kept = model(tokens, targets, memory)
        close(kept[0], model.words(tokens) * math.sqrt(8))
        assert kept.shape == memory.shape
        assert loss > 0
        # A token attends to earlier tokens and to the whole memory, but to no later token.
        late = model(torch.tensor([[1, 2, 9, 4]]), targets, memory)[1]
        changed = ((late - kept).abs().amax((1, 3)) > 1e-6).tolist()
        assert changed == [[False, False, True, False], *[[False, False, True, True]] * 2]
        old = memory.clone()
        old[0, :, 0] += 1
        moved = ((model(tokens, targets, old)[1] - kept).abs().amax((1, 3)) > 1e-6).tolist()
        assert moved == [[False] * 4, [True] * 4, [True] * 4]


def test_a_translator_that_knows_nothing_takes_every_word_to_be_as_likely():
    size = TransformerSize(hidden=8, layers=1, heads=2, inner=8, vocabulary=11, fused=False)
    model = filled(Translator(size))
    model.tokens.weight.data.zero_()
    source = torch.zeros(2, 3, dtype=torch.int64)
    assert model(source, source).item() == pytest.approx(math.log(11))


def test_words_of_transformer_xl_are_scored_in_clusters():
    size = TransformerSize(hidden=8, layers=1, heads=2, inner=8, vocabulary=200_005, positions=4)
    model = TransformerXL(size).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    # There are 19997 frequent words and clusters of 20000, 160000 and 8; a tail has one token in
    # four.
    expected = (4 * math.log(20_000) + math.log(20_000) + math.log(160_000) + math.log(8)) / 4
    assert model(tokens, tokens, torch.zeros(1, 1, 4, 8))[0].item() == pytest.approx(expected)
