"""The operator that turns the output of a detection network into boxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, select, unary
from jitdelegate.ir.forms import IndexMap, Map, Reduce
from jitdelegate.ir.index_forms import ArgReduce, Gather, Suppress, TopK
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case
from jitdelegate.ops.pointwise import mapped
from jitdelegate.ops.quantization import per_tensor_problems, real_value
from jitdelegate.ops.registry import FLOATS, Lowering, Op, flex_map, moved, op, view
from jitdelegate.ops.suppression import how_many

DEFAULTS = {"detections_per_class": 100, "use_regular_nms": False}
COUNTS = ("max_detections", "max_classes_per_detection", "detections_per_class", "num_classes")
SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
NUMERIC = (*COUNTS, *SCALES, "nms_score_threshold", "nms_iou_threshold")
ANCHORS = np.linspace(0.2, 0.8, 96, dtype=np.float32)[np.arange(96) * 37 % 96].reshape(24, 4)
OPTIONS = {
    "max_detections": 4,
    "max_classes_per_detection": 1,
    "num_classes": 5,
    "nms_score_threshold": 0.2,
    "nms_iou_threshold": 0.5,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 4.0,
}
"""The options of the cases."""
HERE, NEXT = IndexMap.along(0), IndexMap.along(1)
"""Index maps of an operand along the output's first axis, and along its second."""


@op("TFLite_Detection_PostProcess", custom=True)
class DetectionPostProcess(Op):
    """Boxes [1, M, 4], classes [1, M], scores [1, M] and their number [1], from encodings [1, N, 4], scores [1, N, C]
    and anchors [N, 4].

    The centre of a box is the anchor's centre + encoding / scale * anchor's size; the box reaches half of exp(encoding
    / scale) * anchor's size to each side of it. Non-maximum suppression follows: over each box's best score, or with
    `use_regular_nms` for each class on its own. If the scores have one class more than `num_classes`, the first class
    is the background. Unused elements of the outputs are 0; LiteRT does not initialize them. Of equal scores the
    earlier box comes first, and within one box the earlier class; LiteRT sorts classes of equal scores in another order
    where `max_classes_per_detection` is above 1. LiteRT stops with an error at a box that is upside down; here such a
    box overlaps no other box.
    """

    folds = 0
    least = most = 3
    quantized = ("uint8",)
    quantized_kinds: ClassVar = dict.fromkeys(range(3), ("uint8", "float32"))
    quantized_results: ClassVar = dict.fromkeys(range(4), FLOATS)
    cases = (
        Case(((1, 24, 4), (1, 24, 6), ANCHORS), OPTIONS, low=0, high=1),
        Case(((1, 24, 5), (1, 24, 5), ANCHORS), OPTIONS | {"max_classes_per_detection": 3}, low=0, high=1),
        Case(((1, 24, 4), (1, 24, 6), ANCHORS), OPTIONS | {"use_regular_nms": True}, low=0, high=1),
        Case(
            ((1, 24, 4), (1, 24, 5), ANCHORS),
            OPTIONS | {"use_regular_nms": True, "detections_per_class": 2, "nms_score_threshold": 0.9},
            low=0,
            high=1,
        ),
    )

    def decode(self, options: bytes) -> dict[str, Any]:
        """A FlexBuffer: a map of numbers by name; missing numbers are 0 where LiteRT reads them as 0."""
        values = flex_map(options)
        if values is None:
            return {}
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float) and isfinite(value)}
        whole = {name: int(numbers[name]) for name in COUNTS if name in numbers}
        return dict.fromkeys(NUMERIC, 0) | DEFAULTS | numbers | whole

    def outputs(self, call: Call) -> int:
        return 4

    def problems(self, call: Call) -> Iterator[str]:
        encodings, scores, anchors = (call.shape(k) for k in range(3))
        agree = encodings[:2] == scores[:2] == (1, *anchors[:1]) and anchors[1:] == (4,)
        if not agree or len(encodings) != 3 or len(scores) != 3 or encodings[2] < 4:
            yield f"{self.name} of the shapes {list(encodings)}, {list(scores)} and {list(anchors)}."
        options = self._options(call.node.attrs)
        if scores[2] - options["num_classes"] not in (0, 1):
            yield f"{self.name}: {scores[2]} scores a box for {options['num_classes']} classes."
        if any(options[name] < 1 for name in COUNTS):
            yield f"{self.name}: {', '.join(COUNTS)} are {[options[name] for name in COUNTS]}, expected 1 or more."
        if not all(options[name] for name in SCALES):
            yield f"{self.name}: {', '.join(SCALES)} are {[options[name] for name in SCALES]}, expected none to be 0."
        if not 0 < options["nms_iou_threshold"] <= 1:
            yield f"{self.name}: nms_iou_threshold is {options['nms_iou_threshold']}, expected between 0 and 1."

    def quantized_problems(self, call: Call) -> Iterator[str]:
        yield from per_tensor_problems(call, *(tensor for tensor in call.operands if tensor.is_quantized))

    def quantized_lowering(self, call: Call) -> tuple[Lowering, ...]:
        return self.lowering(call)

    @staticmethod
    def _options(attrs: Mapping[str, Any]) -> dict[str, Any]:
        return DEFAULTS | dict(attrs)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        options = self._options(call.node.attrs)
        count = options["max_detections"] * options["max_classes_per_detection"]
        return (1, count, 4), (1, count), (1, count), (1,)

    def lowering(self, call: Call) -> tuple[Lowering, ...]:
        options = self._options(call.node.attrs)
        boxes = decoded(call, options)
        return (separate if options["use_regular_nms"] else together)(call, options, boxes)

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        options = self._options(attrs)
        encodings, scores, anchors = given(arrays)
        boxes, scores = boxes_of(encodings[0], anchors, options), scores[0, :, -options["num_classes"] :]
        count, copies = options["max_detections"], options["max_classes_per_detection"]
        rows = np.zeros((count * copies, 6), np.float32)
        if options["use_regular_nms"]:
            most = min(options["detections_per_class"], count)
            pairs = [(b, c) for c in range(scores.shape[1]) for b in kept_boxes(boxes, scores[:, c], most, options)]
            pairs = sorted(pairs, key=lambda pair: -scores[pair])[:count]
            total = len(pairs)
        else:
            kept = kept_boxes(boxes, scores.max(1), count, options)
            ranked = {b: np.argsort(-scores[b], kind="stable")[:copies] for b in kept}
            pairs, total = [(b, c) for b in kept for c in ranked[b]], len(kept)
        for row, (box, chosen) in zip(rows, pairs, strict=False):
            row[:] = (*boxes[box], chosen, scores[box, chosen])
        return [rows[None, :, :4], rows[None, :, 4], rows[None, :, 5], np.array([total], np.float32)]


def unquantized(call: Call, operand: int) -> int | Lowering:
    """The operand; what it stands for, where it is quantized."""
    data = call.tensor(operand)
    if not data.is_quantized:
        return call.index(operand)
    return mapped(real_value(Arg(0), data), (call.index(operand), data.shape), shape=data.shape)


def decoded(call: Call, options: Mapping[str, Any]) -> Lowering:
    """f32[4, N]: ymin, xmin, ymax and xmax of every box; axes of the kernel: min or max, y or x, box."""
    count = call.shape(2)[0]
    centre, size, half = (
        np.array(values, np.float32)
        for values in (
            [options["y_scale"], options["x_scale"]],
            [options["h_scale"], options["w_scale"]],
            [-0.5, 0.5],
        )
    )
    encoded = [IndexMap.along(-1, 2, 1, starts=(0, 0, start)) for start in (0, 2)]
    anchor = [IndexMap.along(2, 1, starts=(0, start)) for start in (0, 2)]
    middle = Arg(0) / Arg(4) * Arg(3) + Arg(2)
    extent = unary("exp", Arg(1) / Arg(5)) * Arg(3)
    form = Map(middle + Arg(6) * extent, (*encoded, *anchor, NEXT, NEXT, HERE))
    data = (unquantized(call, 0),) * 2 + (unquantized(call, 2),) * 2
    return view(Lowering(form, (*data, centre, size, half), (2, 2, count), "float32"), (4, count))


def together(call: Call, options: Mapping[str, Any], boxes: Lowering) -> tuple[Lowering, ...]:
    """Suppression over each box's best score; then the best classes of the boxes that are kept."""
    count, copies, classes = (options[name] for name in ("max_detections", "max_classes_per_detection", "num_classes"))
    total, best = call.shape(2)[0], min(copies, classes)
    scores = _without_background(call, classes, (total, classes), (1, 2))
    highest = Lowering(Reduce(kind="max", axes=(1,)), (scores,), (total,), "float32")
    kept = Lowering(_suppression(options), (boxes, view(highest, (1, total))), (1, count), "int32")
    indices = view(kept, (count, 1), "int32")
    rows = Lowering(Gather(), (scores, indices), (count, classes), "float32")
    if best == 1:
        ranked = view(Lowering(ArgReduce(axis=1), (rows,), (count,), "int32"), (count, 1), "int32")
    else:
        ranked = Lowering(TopK(), (rows,), (count, best), "int32")
    ranked_indices = view(ranked, (count, best, 1), "int32")
    values = Lowering(Gather(axis=1, batch=1), (rows, ranked_indices), (count, best), "float32")
    shape = (count, copies)
    first = IndexMap.along(0, -1)
    corners = _gathered_boxes(boxes, indices)
    return (
        moved(corners, IndexMap.along(2, 0), (count, copies, 4)),
        Lowering(Map(_where_used(Cast(Arg(0), "float32")), (_padded(2), first)), (ranked, indices), shape),
        moved(values, _padded(2), shape),
        how_many(view(kept, (count,), "int32"), (count,), "float32", (1,)),
    )


def separate(call: Call, options: Mapping[str, Any], boxes: Lowering) -> tuple[Lowering, ...]:
    """Suppression for each class; then the best of all classes together."""
    classes, count = options["num_classes"], options["max_detections"]
    most = min(options["detections_per_class"], count)
    total, all_kept = call.shape(2)[0], classes * most
    length, size = min(count, all_kept), count * options["max_classes_per_detection"]
    scores = _without_background(call, classes, (classes, total), (2, 1))
    kept = Lowering(_suppression(options), (boxes, scores), (classes, most), "int32")
    values = Lowering(
        Gather(axis=1, batch=1), (scores, view(kept, (classes, most, 1), "int32")), (classes, most), "float32"
    )
    kept, values = view(kept, (all_kept,), "int32"), view(values, (all_kept,))
    lowest = select(binary("ge", Arg(0), 0), Arg(1), Const(float("-inf")))
    ranking = Lowering(Map(lowest, (HERE, HERE)), (kept, values), (all_kept,), "float32")
    order = Lowering(TopK(), (ranking,), (length,), "int32")
    indices = view(order, (length, 1), "int32")
    chosen = Lowering(Gather(), (kept, indices), (length,), "int32")
    scored = Lowering(Gather(), (values, indices), (length,), "float32")
    corners = _gathered_boxes(boxes, view(chosen, (length, 1), "int32"))
    row = _padded(1)
    return (
        moved(corners, IndexMap.along(1, 0, fill=0.0), (size, 4)),
        Lowering(Map(_where_used(Cast(Arg(0) / most, "float32")), (row, row)), (order, chosen), (size,)),
        moved(scored, row, (size,)),
        how_many(chosen, (length,), "float32", (1,)),
    )


def _without_background(call: Call, classes: int, shape: Shape, axes: tuple[int, int]) -> Lowering:
    """The scores without the background class, in another order of axes: `axes` of the scores, with boxes as axis 1."""
    background = call.shape(1)[2] - classes
    access = IndexMap.along(-1, axes.index(1), axes.index(2), starts=(0, 0, background))
    return moved(unquantized(call, 1), access, shape, "float32")


def _suppression(options: Mapping[str, Any]) -> Suppress:
    return Suppress(score_threshold=options["nms_score_threshold"], overlap=options["nms_iou_threshold"])


def _gathered_boxes(boxes: Lowering, indices: Lowering) -> Lowering:
    """f32[4, indices]: the boxes at these indices, 0 for unused entries."""
    assert indices.shape is not None
    return Lowering(Gather(axis=1), (boxes, indices), (4, indices.shape[0]), "float32")


def _padded(rank: int) -> IndexMap:
    """Reads every element at its own index, and 0 outside the operand."""
    return IndexMap.along(*range(rank), fill=0.0)


def _where_used(value: Expr) -> Expr:
    return select(binary("ge", Arg(1), 0), value, 0.0)


# the reference


def boxes_of(encodings: np.ndarray, anchors: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
    """f32[N, 4]: ymin, xmin, ymax, xmax."""
    wide = encodings.astype(np.float64)
    scales = np.array([options[name] for name in SCALES], np.float32)
    middle = (wide[:, :2] / scales[:2] * anchors[:, 2:] + anchors[:, :2]).astype(np.float32)
    half = (0.5 * np.exp(wide[:, 2:4] / scales[2:]) * anchors[:, 2:]).astype(np.float32)
    return np.concatenate([middle - half, middle + half], axis=1)


def kept_boxes(boxes: np.ndarray, scores: np.ndarray, most: int, options: Mapping[str, Any]) -> list[int]:
    """The indices of the boxes that suppression keeps, best first."""
    kept: list[int] = []
    for number in np.argsort(-scores, kind="stable"):
        if scores[number] < np.float32(options["nms_score_threshold"]) or len(kept) == most:
            break
        if all(shared_part(boxes[number], boxes[other]) <= options["nms_iou_threshold"] for other in kept):
            kept.append(int(number))
    return kept


def shared_part(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    areas = [float(np.prod(box[2:] - box[:2])) for box in (a, b)]
    shared = float(np.prod(np.maximum(high - low, 0)))
    return shared / (sum(areas) - shared) if min(areas) > 0 else 0.0
