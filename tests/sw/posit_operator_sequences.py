"""Cases of attention and of recurrent layers."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry
from torch import nn

from trainwright import posit
from trainwright.posit import PositTensor

CASES, case = registry()


def softmax(b, x, hidden):
    """Compute a softmax along the last dimension, in which hidden scores take no part."""
    x = torch.where(hidden, b.number(-b.fmt.maxpos), x)
    largest = b.number_of(b.value(x).amax(-1, keepdim=True))
    e = torch.where(hidden, 0, b.apply("exp", b.sub(x, largest)))
    y = b.div(e, b.total(e, e.dim() - 1).unsqueeze(-1))
    return torch.where(hidden.all(-1, keepdim=True), 0, y)


def transposed(x):
    return x.transpose(-1, -2)


@case
def masked_softmaxes(b):
    x, hidden = b.some(4, 5), torch.rand(4, 5, generator=b.g) < 0.4
    hidden[2], hidden[:, 0] = True, False
    float_mask = torch.zeros(4, 5).masked_fill(hidden, float("-inf"))
    p, g = b.posits(x, grad=True), b.some(4, 5)
    y = softmax(b, x, hidden)
    y[2] = b.number([1.0, 0, 0, 0, 0])
    for scores in (p.masked_fill(hidden, float("-inf")), p + float_mask, float_mask + p):
        yield scores.softmax(1), y
    yield p.clone().add_(float_mask).softmax(1), y
    lowest = b.number(-b.fmt.maxpos)
    yield torch.where(hidden, float("-inf"), p), torch.where(hidden, lowest, x)
    scores = p + float_mask
    (gradient,) = torch.autograd.grad(scores.softmax(1), p, b.posits(g))
    inner = b.dot(g, y).unsqueeze(1)
    yield gradient, b.mul(b.sub(g, inner), y)
    logarithms = scores.log_softmax(1)
    z = b.sub(x, b.number_of(b.value(x).where(~hidden, -1e9).amax(1, keepdim=True)))
    e = torch.where(hidden, 0, b.apply("exp", z))
    want = b.sub(z, b.apply("log", b.total(e, 1)).unsqueeze(1))
    yield logarithms, torch.where(hidden, lowest, want)
    (gradient,) = torch.autograd.grad(logarithms, p, b.posits(g))
    p_hidden = torch.where(hidden, 0, b.apply("exp", want))
    want = b.sub(g, b.mul(p_hidden, b.total(g, 1).unsqueeze(1)))
    yield gradient, torch.where(hidden, g, want)


@case
def attentions(b):
    q, k, v = b.some(2, 1, 3, 4), b.some(2, 1, 4, 4), b.some(2, 1, 4, 3)
    p = b.posits(q, k, v)
    scale = b.number(4**-0.25)
    scores = b.matmul(b.mul(q, scale), transposed(b.mul(k, scale)))
    hidden = torch.zeros(3, 4, dtype=torch.bool)
    yield F.scaled_dot_product_attention(*p), b.matmul(softmax(b, scores, hidden), v)
    causal = torch.ones(3, 4, dtype=torch.bool).triu(1)
    y = F.scaled_dot_product_attention(*p, is_causal=True)
    yield y, b.matmul(softmax(b, scores, causal), v)
    hidden[1], hidden[0, 2] = True, True
    y = F.scaled_dot_product_attention(*p, attn_mask=~hidden)
    yield y, b.matmul(softmax(b, scores, hidden), v)


@case
def attention_layers(b):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    nn.init.normal_(layer.in_proj_bias)
    posit.convert(layer, b.fmt)
    x, start = b.some(2, 3, 4), b.number(1.0).expand(6, 1)
    p = b.posits(x)
    rows = torch.cat([layer.in_proj_bias.codes().unsqueeze(1), layer.in_proj_weight.codes()], 1)
    q, k, v = b.matmul(torch.cat([start, x.flatten(0, 1)], 1), rows.t()).split(4, 1)
    q, k, v = (t.reshape(2, 3, 2, 2).transpose(1, 2) for t in (q, k, v))
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    out = layer.out_proj.weight.codes().t()

    def joined(weights):
        heads = b.matmul(weights, v).transpose(1, 2).reshape(6, 4)
        return b.matmul(heads, out).reshape(2, 3, 4)

    whole = b.matmul(b.mul(q, b.number(0.5**0.5)), transposed(k))
    halves = b.matmul(*(b.mul(t, b.number(2**-0.25)) for t in (q, k)), right=True)
    for mode in (True, False):  # torch has a fused path of its own for evaluation
        layer.train(mode)
        with torch.no_grad():
            y, weights = layer(p, p, p, attn_mask=causal, average_attn_weights=False)
            yield weights, softmax(b, whole, causal)
            yield y, joined(softmax(b, whole, causal))
            y, _ = layer(p, p, p, attn_mask=causal, need_weights=False)
            yield y, joined(softmax(b, halves, causal))


@case
def recurrent_layers(b):
    torch.manual_seed(0)
    layers = [
        posit.convert(kind(2, 3, batch_first=True), b.fmt) for kind in (nn.LSTM, nn.GRU, nn.RNN)
    ]
    x, unit = b.some(2, 2, 2), b.number(1.0)
    p = b.posits(x)
    for layer in layers:
        weights = [w.codes() for w in (layer.weight_ih_l0, layer.weight_hh_l0)]
        starts = [w.codes() for w in (layer.bias_ih_l0, layer.bias_hh_l0)]

        def linear(x, i, weights=weights, starts=starts):
            lines = torch.cat([unit.expand(len(x), 1), x], 1)
            return b.matmul(lines, torch.cat([starts[i].unsqueeze(1), weights[i]], 1).t())

        h = c = torch.zeros(2, 3, dtype=torch.int64)
        outputs = []
        for t in range(2):
            given, kept = linear(x[:, t], 0), linear(h, 1)
            if layer.mode == "LSTM":
                i, f, g, o = b.add(kept, given).split(3, 1)
                i, f, o = (b.apply("sigmoid", gate) for gate in (i, f, o))
                g = b.apply("tanh", g)
                c = b.add(b.mul(f, c), b.mul(i, g))
                h = b.mul(o, b.apply("tanh", c))
            elif layer.mode == "GRU":
                (r, z, n), (r_kept, z_kept, n_kept) = given.split(3, 1), kept.split(3, 1)
                r, z = (b.apply("sigmoid", b.add(*ends)) for ends in ((r, r_kept), (z, z_kept)))
                n = b.apply("tanh", b.add(n, b.mul(r, n_kept)))
                h = b.add(b.mul(b.sub(h, n), z), n)
            else:
                h = b.apply("tanh", b.add(kept, given))
            outputs.append(h)
        yield layer(p)[0], torch.stack(outputs, 1)


@case
def packed_sequences(b):
    x = b.some(3, 2, 2)
    p = b.posits(x, grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(p, [3, 1])
    yield packed.data, torch.stack([x[0, 0], x[0, 1], x[1, 0], x[2, 0]])
    third = b.number(1 / 3)
    y, lengths = nn.utils.rnn.pad_packed_sequence(packed, padding_value=1 / 3, total_length=4)
    want = torch.cat([x, third.expand(1, 2, 2)])
    want[1:, 1] = third
    yield y, want
    yield lengths, torch.tensor([3, 1])
    assert isinstance(y, PositTensor)
    g = b.some(4, 2, 2)
    dx = g[:3].clone()
    dx[1:, 1] = 0
    yield torch.autograd.grad(y, p, b.posits(g))[0], dx
