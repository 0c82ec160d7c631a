"""NasRNN (Zoph and Le 2017): eight gates in a cell, unrolled; 5 steps as in TASO's own graph, 20 in equality saturation's."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights

GATES = 8


def nasrnn(
    *, steps: int = 5, hidden: int = 512, batch: int = 1, shared: bool = True, weights: Weights = True, seed: int = 0
) -> ModelProto:
    """The unrolled network. All steps share their weights; with `shared` off each has its own, as in TASO's own graph."""
    net = Network("nasrnn", seed)
    xs = [net.input(f"x{step}", batch, hidden) for step in range(steps)]
    state = net.input("state", batch, hidden)
    pairs: list[tuple[Tensor, Tensor]] = []
    for x in xs:
        if not pairs or not shared:
            pairs = _weights(net, hidden)
        state = _cell(net, _gates(net, x, state, pairs))
    return net.model({"state_out": state}, weights)


def nasrnn_gates(*, hidden: int = 512, batch: int = 1, weights: Weights = True, seed: int = 0) -> ModelProto:
    """The products of one step: eight of the input and eight of the state."""
    net = Network("nasrnn_gates", seed)
    x, state = (net.input(name, batch, hidden) for name in ("x", "state"))
    gates = _gates(net, x, state, _weights(net, hidden))
    return net.model({f"gate{k}": gate for k, gate in enumerate(gates)}, weights)


def _weights(net: Network, hidden: int) -> list[tuple[Tensor, Tensor]]:
    return [
        (net.weight(hidden, hidden, fan_in=hidden), net.weight(hidden, hidden, fan_in=hidden)) for _ in range(GATES)
    ]


def _gates(net: Network, x: Tensor, state: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [net.add(net.matmul(x, of_x), net.matmul(state, of_state)) for of_x, of_state in pairs]


def _cell(net: Network, gates: Sequence[Tensor]) -> Tensor:
    """The cell that the search of Zoph and Le found: a tree over the gates."""

    def two(op: str, first: tuple[str, Tensor], second: tuple[str, Tensor]) -> Tensor:
        return net.binary(op, net.unary(*first), net.unary(*second))

    a = two("Add", ("Relu", gates[0]), ("Sigmoid", gates[3]))
    b = two("Add", ("Sigmoid", gates[1]), ("Tanh", gates[2]))
    c = two("Mul", ("Sigmoid", gates[4]), ("Tanh", gates[5]))
    d = two("Mul", ("Sigmoid", gates[6]), ("Relu", gates[7]))
    left = two("Add", ("Sigmoid", b), ("Tanh", c))
    right = two("Mul", ("Tanh", a), ("Tanh", d))
    return net.unary("Tanh", two("Mul", ("Tanh", left), ("Tanh", right)))
