import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from foretell.export.external_data import share_weights


def graph(*weights: np.ndarray) -> onnx.ModelProto:
    names = [f"w{i}" for i in range(len(weights))]
    nodes = []
    previous = "x"
    for name in names:
        nodes.append(helper.make_node("Add", [previous, name], [f"{name}_out"]))
        previous = f"{name}_out"
    shape = list(weights[0].shape)
    return helper.make_model(
        helper.make_graph(
            nodes,
            "sum",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(previous, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(w, n) for n, w in zip(names, weights, strict=True)],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )


def test_equal_tensors_are_stored_once_and_both_graphs_run(tmp_path):
    random = np.random.default_rng(0)
    shared, own = random.normal(size=(2, 40, 40)).astype(np.float32)
    graphs = {"a.onnx": graph(shared, own), "b.onnx": graph(own, shared, shared)}
    share_weights(graphs.values(), tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").stat().st_size < 2 * shared.nbytes + 4096
    x = np.zeros((40, 40), np.float32)
    for name, proto in graphs.items():
        onnx.save(proto, tmp_path / name)
        assert (tmp_path / name).stat().st_size < shared.nbytes
        session = onnxruntime.InferenceSession(
            str(tmp_path / name), providers=["CPUExecutionProvider"]
        )
        expected = shared + own if name == "a.onnx" else own + shared + shared
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6)


def test_small_tensors_stay_in_the_graph(tmp_path):
    proto = graph(np.ones((4, 4), np.float32))
    share_weights([proto], tmp_path / "weights.bin")
    assert proto.graph.initializer[0].raw_data
    assert (tmp_path / "weights.bin").stat().st_size == 0


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        share_weights([graph(np.ones((4, 4), np.float32))], tmp_path / "weights.bin")
