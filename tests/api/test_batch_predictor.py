"""BatchPredictor: rows through a model in one process, after pickling, and on real Dask and Ray clusters."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate import BatchPredictor, TensorError
from tests.api import small_models

ROWS = np.random.default_rng(1).standard_normal((11, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope="module", params=[False, True], ids=["one row", "open batch"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "model.tflite"
    place.write_bytes(small_models.convolution(open_batch=request.param))
    return place


@pytest.fixture(scope="module")
def expected(path: Path) -> np.ndarray:
    """Row by row, by LiteRT."""
    model = jitdelegate.load(path, target="litert")
    return np.concatenate([np.asarray(model(ROWS[k : k + 1])) for k in range(len(ROWS))])


@pytest.fixture
def predictor(path: Path, tmp_path: Path) -> BatchPredictor:
    return BatchPredictor(path, batch_size=_size(path), options={"serialization_dir": str(tmp_path / "cache")})


def _size(path: Path) -> int | None:
    """Rows of an inference: 4, which does not divide the number of rows, where the model leaves it open."""
    return 4 if jitdelegate.load(path, target="litert").inputs[0].shape_signature[0] == -1 else None


@pytest.mark.parametrize("count", [0, 1, 4, 11])
def test_any_number_of_rows_makes_as_many_outputs(predictor: BatchPredictor, expected: np.ndarray, count: int) -> None:
    found = predictor(ROWS[:count])
    assert found.shape == (count, 4, 4, 4)
    np.testing.assert_allclose(found, expected[:count], atol=1e-5)


def test_all_batches_run_one_program(predictor: BatchPredictor, path: Path, tmp_path: Path) -> None:
    for count in (1, 4, 11, 7):
        predictor(ROWS[:count])
    programs = len([each for each in (tmp_path / "cache").rglob("*") if each.is_file() and each.stat().st_size > 4096])
    assert programs == (2 if _size(path) else 1)  # that for the file's shapes, and that for four rows


def test_a_mapping_keeps_its_columns(path: Path, expected: np.ndarray) -> None:
    predictor = BatchPredictor(path, inputs={"image": "pixels"}, outputs={"features": "found"})
    found = predictor({"pixels": ROWS, "label": np.arange(11)})
    assert sorted(found) == ["found", "label", "pixels"]
    np.testing.assert_allclose(found["found"], expected, atol=1e-5)


def test_a_data_frame_holds_arrays_in_cells(path: Path, expected: np.ndarray) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"label": range(11), "image": list(ROWS)})
    found = BatchPredictor(path)(frame)
    assert list(found.columns) == ["label", "image", "features"]
    np.testing.assert_allclose(np.stack(list(found["features"])), expected, atol=1e-5)
    assert "features" not in frame.columns


def _halved(batch: Any) -> Any:
    return {"image": np.asarray(batch["image"]) / np.float32(2)}


def test_a_pickled_predictor_prepares_and_answers_alike(path: Path) -> None:
    predictor = BatchPredictor(path, prepare=_halved, options={"target": "cpu"})
    before = predictor({"image": ROWS})["features"]  # loaded: what is pickled must not be the model
    copy = pickle.loads(pickle.dumps(predictor))
    assert len(pickle.dumps(predictor)) < 1000
    np.testing.assert_array_equal(copy({"image": ROWS})["features"], before)
    np.testing.assert_allclose(before, BatchPredictor(path)(ROWS / np.float32(2)), atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"picture": ROWS, "label": ROWS}, "has the columns picture, label, expected image"),
        ({"image": ROWS[0]}, "expected float32"),
        ({"image": ROWS.astype(np.float64)}, "found float64"),
    ],
)
def test_a_wrong_batch_is_named(path: Path, batch: Any, words: str) -> None:
    with pytest.raises(TensorError, match=words):
        BatchPredictor(path)(batch)


def test_a_wrong_size_is_named(path: Path) -> None:
    with pytest.raises(TensorError, match=r"batch_size is 0"):
        BatchPredictor(path, batch_size=0)(ROWS)
    if _size(path) is None:
        with pytest.raises(TensorError, match=r"batch_size is 3, but the model's inputs are 'image' \[1, 8, 8, 3\]"):
            BatchPredictor(path, batch_size=3)(ROWS)


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_workers_start_warm_from_one_read_only_cache(
    dask_client: Any, path: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    frames, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    cache = tmp_path / "cache"
    options = {"serialization_dir": str(cache), "target": "cpu"}
    BatchPredictor(path, batch_size=_size(path), options=options)(ROWS)
    kept = {each: each.stat().st_mtime_ns for each in cache.rglob("*") if each.is_file()}
    cache.chmod(0o500)
    frame = pandas.DataFrame({"row": range(11)})
    predictor = BatchPredictor(
        path, prepare=_pictures, outputs={"features": "found"}, batch_size=_size(path), options=options
    )
    parts = frames.from_pandas(frame, npartitions=3).map_partitions(
        predictor, meta=frame.assign(found=pandas.Series(dtype=object))
    )
    found = dask_client.compute(parts).result().sort_values("row")
    np.testing.assert_allclose(np.stack(list(found["found"])), expected, atol=1e-5)
    misses = dask_client.run(_misses, str(path), options)
    assert set(misses.values()) == {0} and len(misses) == 2  # in two processes
    assert {each: each.stat().st_mtime_ns for each in cache.rglob("*") if each.is_file()} == kept


def _pictures(batch: Any) -> Any:
    """What a frame of file names leads to."""
    return {"image": ROWS[batch["row"]]}


def _misses(path: str, options: dict[str, Any]) -> int:
    """Programs that this process had to compile."""
    misses = jitdelegate.load(path, options=options).report().cache.counters["misses"]
    assert isinstance(misses, dict)  # reason -> number
    return sum(misses.values())


def test_ray_maps_batches(path: Path, expected: np.ndarray, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    try:
        rows = ray.data.from_numpy(ROWS)
        found = rows.map_batches(
            BatchPredictor,
            fn_constructor_args=(str(path),),
            fn_constructor_kwargs={"inputs": {"image": "data"}, "options": {"serialization_dir": str(tmp_path)}},
            concurrency=2,
            batch_size=4,
        ).take_all()
        np.testing.assert_allclose(np.stack([row["features"] for row in found]), expected, atol=1e-5)
    finally:
        ray.shutdown()
