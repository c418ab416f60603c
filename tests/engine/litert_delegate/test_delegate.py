"""The delegate in LiteRT's interpreter gives what LiteRT alone gives, and its errors reach the user."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, DelegateKernel
from jitdelegate.engine.litert_delegate.kernel import Kernel
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.errors import DelegateWarning, DelegationError, DeviceError
from tests.engine.litert_delegate import control_models
from tests.engine.litert_delegate.clients import NumpyClient, chain, delegated, expected, numbers, run, same

X = numbers((2, 3))


@pytest.mark.parametrize("partitions", range(1, 13))
def test_partitions_give_what_litert_gives(partitions: int) -> None:
    content = chain(partitions)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    before = callbacks.python_invocations
    same(run(interpreter, X), expected(content, X))
    assert callbacks.python_invocations - before == partitions
    assert client.opened == [(0, (3 * number, 3 * number + 1)) for number in range(partitions)]
    assert client.warnings == []


def test_new_shapes_open_new_kernels_and_known_ones_do_not() -> None:
    content = chain(3)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    for shape in ((2, 3), (4, 5), (1, 1), (2, 3)):
        x = numbers(shape)
        same(run(interpreter, x, resize=True), expected(content, x, resize=True))
    assert len(client.opened) == 4 * 3
    assert len(client.living) == 3
    run(interpreter, x)
    assert len(client.opened) == 4 * 3


def test_a_model_that_is_offered_again_is_known_again() -> None:
    content = chain(3)
    client = NumpyClient(content)
    interpreter = Interpreter(model_content=content, experimental_delegates=[NativeDelegate(client, flags=0)])
    for shape in ((2, 3), (4, 5), (2, 3)):
        x = numbers(shape)
        same(run(interpreter, x, resize=True), expected(content, x, resize=True))
    assert client.warnings == [] and len(client.living) == 3


def test_an_input_without_elements_runs() -> None:
    content = chain(2)
    interpreter, _ = delegated(content, NumpyClient(content))
    (result,) = run(interpreter, np.zeros((0, 3), np.float32), resize=True)
    assert result.shape == (0, 3)


@pytest.mark.parametrize("fused", [True, False])
def test_partitions_are_litert_s_even_where_it_makes_one_of_each_node(fused: bool) -> None:
    content = chain(3)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client, experimental_disable_delegate_node_fusion=not fused)
    same(run(interpreter, X), expected(content, X))
    assert len(client.opened) == (3 if fused else 6)


def test_kept_intermediate_tensors_change_nothing() -> None:
    content = chain(3)
    interpreter, _ = delegated(content, NumpyClient(content), experimental_preserve_all_tensors=True)
    same(run(interpreter, X), expected(content, X))


def test_a_client_that_claims_nothing_leaves_the_model_alone() -> None:
    content = chain(2)
    client = NumpyClient(content, claimed=())
    interpreter, _ = delegated(content, client)
    same(run(interpreter, X), expected(content, X))
    assert client.opened == [] and client.warnings == []


CONTROL = {
    "loop": (control_models.loop, ("ADD", "MUL", "LESS"), (np.array(3, np.int32), X), {0, 1, 2}),
    "then": (control_models.choice, ("ADD", "MUL"), (np.array(True), X), {1, 2}),
    "else": (control_models.choice, ("ADD", "MUL"), (np.array(False), X), {1, 2}),
}


@pytest.mark.parametrize("name", CONTROL)
def test_bodies_of_loops_and_branches_are_delegated_too(name: str) -> None:
    make, ops, inputs, subgraphs = CONTROL[name]
    content = make()
    client = NumpyClient(content, ops)
    interpreter, _ = delegated(content, client)
    same(run(interpreter, *inputs), expected(content, *inputs))
    assert {subgraph for subgraph, _ in client.opened} == subgraphs
    assert client.warnings == []


def test_resource_variables_are_litert_s_and_the_sum_ours() -> None:
    content = control_models.variable()
    client = NumpyClient(content)
    (interpreter, _), alone = delegated(content, client), Interpreter(model_content=content)
    for seed in range(3):
        x = numbers((2, 3), seed)
        same(run(interpreter, x), run(alone, x))
    assert client.opened == [(0, (3, 5))]


@pytest.mark.parametrize("skipped", [False, True])
def test_signatures_enter_delegated_subgraphs(skipped: bool) -> None:
    content = control_models.signatures(skipped)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    for key, result in (("add", X + 3), ("multiply", X * 3)):
        np.testing.assert_array_equal(interpreter.get_signature_runner(key)(x=X)["y"], result)
    assert [subgraph for subgraph, _ in client.opened] == ([0, 2] if skipped else [0, 1])
    assert client.warnings == []


def test_shapes_that_only_the_data_says_reach_the_kernel_while_the_model_runs() -> None:
    content = control_models.late_shape()
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    for x in (np.arange(6), np.arange(6) - 3, np.arange(6) - 2):
        same(run(interpreter, x.astype(np.float32)), expected(content, x.astype(np.float32)))
    assert len(client.living) == 1


def test_two_delegates_share_a_model() -> None:
    content = chain(3)
    clients = NumpyClient(content, ("ABS",)), NumpyClient(content)
    delegates = [NativeDelegate(client) for client in clients]
    interpreter = Interpreter(model_content=content, experimental_delegates=delegates)
    same(run(interpreter, X), expected(content, X))
    assert [len(client.living) for client in clients] == [2, 3]


def test_nodes_that_another_delegate_took_are_left_to_it() -> None:
    content = chain(2)
    clients = NumpyClient(content, ("ADD",)), NumpyClient(content)
    delegates = [NativeDelegate(client) for client in clients]
    interpreter = Interpreter(model_content=content, experimental_delegates=delegates)
    same(run(interpreter, X), expected(content, X))
    assert [len(client.living) for client in clients] == [2, 0]
    assert "another delegate has taken nodes 0, 3" in clients[1].warnings[0]


def test_a_delegate_stays_out_of_a_second_interpreter() -> None:
    content = chain(2)
    client = NumpyClient(content)
    first, delegate = delegated(content, client)
    second = Interpreter(model_content=content, experimental_delegates=[delegate])
    for interpreter in (first, second):
        same(run(interpreter, X), expected(content, X))
    assert len(client.living) == 2
    assert "one delegate per interpreter" in client.warnings[0]


@pytest.mark.parametrize("other", [chain(1), control_models.choice()])
def test_another_model_than_the_client_s_is_left_alone(other: bytes) -> None:
    client = NumpyClient(chain(2))
    interpreter, _ = delegated(other, client)
    interpreter.allocate_tensors()
    assert client.opened == [] and len(client.warnings) == 1
    assert "is not what LiteRT has" in client.warnings[0]


@pytest.mark.parametrize(
    "tensors, nodes, found",
    [
        ([(0, "y", "float32")], [], "tensor 0 is called"),
        ([(0, "x", "int32")], [], "tensor 0 (x) is float32, expected int32"),
        ([], [(0, (0, 1), (2,))], "node 0 has the tensors"),
    ],
)
def test_each_difference_between_file_and_interpreter_is_noticed(
    tensors: list[tuple[int, str, str]], nodes: list[tuple[int, tuple[int, ...], tuple[int, ...]]], found: str
) -> None:
    content = chain(1)
    client = NumpyClient(content)
    facts = client.facts(0)
    facts.tensors, facts.nodes = tuple(tensors), tuple(nodes)
    client.facts = lambda subgraph: facts  # type: ignore[method-assign]
    delegated(content, client)
    assert found in client.warnings[0]


STUMBLES = {"kernel": "allocate_tensors", "run": "invoke"}


@pytest.mark.parametrize("where", STUMBLES)
def test_an_error_in_a_kernel_reaches_the_user_and_the_next_call_works(where: str) -> None:
    content = chain(2)
    client = NumpyClient(content)
    interpreter, delegate = delegated(content, client)
    if where == "run":
        interpreter.allocate_tensors()
    client.failing[where] = ValueError("100% as %s intended %n")
    with pytest.raises(RuntimeError, match="jitdelegate: ValueError: 100% as %s intended %n"):
        getattr(interpreter, STUMBLES[where])()
    same(run(interpreter, X), expected(content, X))
    assert delegate.interruption is None


def test_a_shape_that_fails_leaves_the_one_before() -> None:
    content = chain(2)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    run(interpreter, X)
    client.failing["kernel"] = ValueError("too large")
    with pytest.raises(RuntimeError, match="too large"):
        run(interpreter, numbers((8, 8)), resize=True)
    same(run(interpreter, X, resize=True), expected(content, X))
    assert len(client.opened) == 2 and len(client.living) == 2


@pytest.mark.parametrize("resized", [True, False])
def test_an_error_in_close_is_told(resized: bool) -> None:
    content = chain(1)
    client = NumpyClient(content)
    interpreter, _ = delegated(content, client)
    run(interpreter, X)
    client.failing["close"] = ValueError("kaboom")
    if resized:
        with pytest.raises(RuntimeError, match="ValueError: kaboom"):
            run(interpreter, numbers((8, 8)), resize=True)
        same(run(interpreter, X, resize=True), expected(content, X))
    else:
        del interpreter
        assert client.warnings == ["a partition could not be closed: ValueError: kaboom"]


def test_an_error_in_init_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "Kernel", None)
    content = chain(1)
    interpreter, _ = delegated(content, NumpyClient(content))
    with pytest.raises(RuntimeError, match=r"TypeError: 'NoneType'.*a partition has no kernel"):
        interpreter.allocate_tensors()


def test_an_interrupt_in_a_kernel_ends_the_run_and_is_kept() -> None:
    content = chain(1)
    client = NumpyClient(content)
    interpreter, delegate = delegated(content, client)
    interpreter.allocate_tensors()
    client.failing["run"] = KeyboardInterrupt()
    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        interpreter.invoke()
    assert isinstance(delegate.interruption, KeyboardInterrupt)
    same(run(interpreter, X), expected(content, X))


@pytest.mark.parametrize("where", ["facts", "partitions"])
def test_an_error_before_anything_is_claimed_leaves_the_model_to_litert(where: str) -> None:
    content = chain(2)
    client = NumpyClient(content)
    client.failing[where] = ValueError("kaboom")
    interpreter, _ = delegated(content, client)
    same(run(interpreter, X), expected(content, X))
    assert client.opened == [] and "ValueError: kaboom" in client.warnings[0]


@pytest.mark.parametrize("where", ["facts", "partitions"])
def test_a_client_can_refuse_the_interpreter(where: str) -> None:
    content = chain(2)
    client = NumpyClient(content)
    client.failing[where] = DelegationError("operator 1 (MUL) is not delegated")
    with pytest.raises(RuntimeError, match=r"jitdelegate: operator 1 \(MUL\) is not delegated"):
        delegated(content, client)


def test_a_warning_that_the_user_made_an_error_is_one() -> None:
    content = chain(2)
    client = NumpyClient(content)
    client.warn = lambda sentence: DelegateClient.warn(client, sentence)  # type: ignore[method-assign]
    client.failing["partitions"] = ValueError("kaboom")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DelegateWarning)
        with pytest.raises(RuntimeError, match="kaboom"):
            delegated(content, client)


def test_a_client_warns_as_python_does() -> None:
    with pytest.warns(DelegateWarning, match="a reason"):
        DelegateClient().warn("a reason")


@pytest.mark.parametrize(
    "inputs, outputs, named", [((0, 1), (), "3"), ((0, 1), (2, 3), "2"), ((0, 1, 2), (3,), "2"), ((3,), (4,), "3, 4")]
)
def test_a_kernel_with_other_tensors_than_its_partition_is_refused(
    inputs: tuple[int, ...], outputs: tuple[int, ...], named: str
) -> None:
    content = chain(1)
    client = NumpyClient(content)
    make: Callable[..., object] = client.kernel

    def with_others(*arguments: object) -> object:
        kernel = make(*arguments)
        kernel.inputs, kernel.outputs = inputs, outputs  # type: ignore[attr-defined]
        kernel.output_shapes = ((2, 3),) * len(outputs)  # type: ignore[attr-defined]
        return kernel

    client.kernel = with_others  # type: ignore[method-assign, assignment]
    interpreter, _ = delegated(content, client)
    with pytest.raises(RuntimeError, match=f"a kernel and its partition differ in the tensors {named}. Node"):
        interpreter.allocate_tensors()
    assert client.living == set()


@pytest.mark.parametrize("data, shape, refused", [(0, (2,), True), (64, (2,), False), (0, (0, 2), False)])
def test_a_shape_that_is_not_known_yet_is_refused(data: int, shape: tuple[int, ...], refused: bool) -> None:
    tensor = SimpleNamespace(name="places", is_dynamic=True, data=data, shape=shape)
    context = SimpleNamespace(tensor=lambda index: tensor, resize=lambda index, shape: None, address=1)
    client = SimpleNamespace(kernel=lambda *arguments: DelegateKernel())
    kernel = Kernel(SimpleNamespace(client=client), 0, 1, 0)  # type: ignore[arg-type]
    kernel.inputs = (3,)
    if not refused:
        kernel.prepare(context)  # type: ignore[arg-type]
        return
    with pytest.raises(DeviceError, match=r"tensor 3 \(places\) gets its shape only while the model runs"):
        kernel.prepare(context)  # type: ignore[arg-type]


def test_interpreters_leave_nothing_behind() -> None:
    content = chain(3)
    client = NumpyClient(content)
    gc.collect()
    before = len(callbacks.kernels), len(callbacks.delegations)
    for _ in range(300):
        interpreter, delegate = delegated(content, client)
        run(interpreter, X)
        del interpreter, delegate
    assert (len(callbacks.kernels), len(callbacks.delegations)) == before
    assert client.living == set() and len(client.opened) == 900
