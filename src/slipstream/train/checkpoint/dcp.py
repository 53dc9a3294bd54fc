"""Storage of torch.distributed.checkpoint in the form of Slipstream's checkpoints.

    from slipstream.train.checkpoint import dcp

    torch.distributed.checkpoint.save(state, storage_writer=dcp.SlipstreamWriter(path))
    torch.distributed.checkpoint.load(state, storage_reader=dcp.SlipstreamReader(path))

The path is that of one checkpoint, such as "checkpoints/step-00001200". `Checkpointer` reads what
`SlipstreamWriter` wrote, and `SlipstreamReader` reads what `Checkpointer` wrote.
"""

from __future__ import annotations

import dataclasses
import io
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from slipstream.errors import UsageError
from slipstream.train.checkpoint.catalog import read_manifest
from slipstream.train.checkpoint.manifest import (
    CheckpointManifest,
    SavedFile,
    SavedTensor,
    checksums,
    file_name,
    folder_of,
    step_of,
)
from slipstream.train.checkpoint.reading import Target, read_targets
from slipstream.train.checkpoint.save_job import TIMEOUT_SECONDS
from slipstream.train.checkpoint.saving import publish, tensors_of
from slipstream.train.checkpoint.snapshot import HostImage
from slipstream.train.checkpoint.storage import Storage, joined, open_storage
from slipstream.train.checkpoint.tensor_file import DTYPES, NAMES, Piece
from slipstream.train.checkpoint.tree import (
    Json,
    StateEncoder,
    decode,
    entries_of,
    joined_name,
    kind_of,
    tensor_names,
)

Path = str | os.PathLike[str]


class _AtStep:
    """The place of one checkpoint, which a path names."""

    def __init__(self, path: Path) -> None:
        self.storage, self.step = _place(path)

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Take another path, if one is given."""
        if checkpoint_id is not None:
            self.storage, self.step = _place(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether a path names the folder of a step."""
        return step_of(os.fspath(checkpoint_id).rstrip("/").rpartition("/")[2]) is not None


class SlipstreamReader(_AtStep, StorageReader):
    """A reader of Slipstream's checkpoints for torch.distributed.checkpoint.load().

    All bytes that are read are compared with their checksums, and nothing of the files is
    unpickled. A value of each rank, `PerRank`, is that of the rank that reads.

    Args:
        path: Path or URL of a checkpoint, such as "checkpoints/step-00001200".

    Raises:
        UsageError: The path does not end with the folder of a step.
        CheckpointError: The checkpoint is missing or damaged; raised by load().
    """

    _manifest: CheckpointManifest

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the tensors and the plain values of the checkpoint."""
        del args, kwargs
        self._manifest = read_manifest(self.storage, self.step)
        entries: dict[str, Any] = {
            name: BytesStorageMetadata() for name in _plain_nodes(self._manifest.state)
        }
        for name, tensor in self._manifest.tensors.items():
            entries[name] = _tensor_metadata(tensor)
        return Metadata(state_dict_metadata=entries)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Accept the metadata, which this reader does not need."""
        del metadata, is_coordinator, args, kwargs

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read all items of a plan, and return a future that is complete."""
        tensors = [item for item in plan.items if item.type != LoadItemType.BYTE_IO]
        targets = [_target(item, planner) for item in tensors]
        read_targets(self.storage, self._manifest, targets)
        for item, target in zip(tensors, targets, strict=True):
            planner.commit_tensor(item, target.tensor)
        values = _plain_nodes(self._manifest.state)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, _as_stream(values[item.storage_index.fqn]))
        done: Future[None] = Future()
        done.set_result(None)
        return done


class SlipstreamWriter(_AtStep, StorageWriter):
    """A writer of Slipstream's checkpoints for torch.distributed.checkpoint.save().

    The checkpoint is whole after the last rank has written its file, and not there before. Values
    that are no tensors must be plain: int, float, str, bool, bytes, None, lists, tuples and dicts.
    Other checkpoints of the folder stay.

    Args:
        path: Path or URL of the checkpoint to write, such as "checkpoints/step-00001200".

    Raises:
        UsageError: The path does not end with the folder of a step, or a value is not plain.
        OSError: A file cannot be written; save() then raises an error of its own on all ranks.
    """

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Accept the role of this rank, which makes no difference."""
        del is_coordinator, args, kwargs

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Add to each rank's plan the name of its file."""
        save = f"{secrets.token_hex(4)}-1"
        names = (file_name(rank, len(plans), save, "safetensors") for rank in range(len(plans)))
        return [
            dataclasses.replace(plan, storage_data=name)
            for plan, name in zip(plans, names, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write all items of a plan, and return a future that is complete."""
        items = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
        results = self._write_tensors(plan.storage_data, items, planner) if items else []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                node = _plain_node(item, planner)
                results.append(WriteResult(item.index, 0, node))
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def _write_tensors(
        self, name: str, items: list[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        boxes = [_box_of(item, number) for number, item in enumerate(items)]
        values = [cast("torch.Tensor", planner.resolve_data(item)).detach() for item in items]
        image = HostImage()
        layout = image.take(list(zip(boxes, values, strict=True)))
        file = SavedFile(name=name, num_bytes=len(image.data), checksums=checksums(image.data))
        self.storage.write(joined(folder_of(self.step), name), image.data)
        return [
            WriteResult(item.index, piece.num_bytes, (file, piece, begin))
            for item, piece, begin in zip(items, boxes, layout.begins, strict=True)
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the manifest; only one rank calls this, after all files are safe."""
        files: dict[str, SavedFile] = {}
        tensors: dict[str, SavedTensor] = {}
        values: dict[str, Json] = {}
        for result in (result for of_rank in results for result in of_rank):
            if isinstance(metadata.state_dict_metadata[result.index.fqn], BytesStorageMetadata):
                values[result.index.fqn] = result.storage_data
                continue
            file, piece, begin = result.storage_data
            files.setdefault(file.name, file)
            _add_box(tensors, piece, begin, list(files).index(file.name))
        values |= {name: {"$tensor": name, "array": False} for name in tensors}
        save = next(iter(files), f".{secrets.token_hex(4)}-1.").split(".")[1]
        manifest = CheckpointManifest(
            step=self.step,
            time=time.time(),
            num_ranks=len(results),
            save=save,
            files=tuple(files.values()),
            tensors=tensors,
            state=_nested(values, metadata.planner_data or {}),
        )
        publish(self.storage, manifest, keep=None, quiet_seconds=TIMEOUT_SECONDS)


def _place(path: Path) -> tuple[Storage, int]:
    text = os.fspath(path).rstrip("/")
    parent, _, folder = text.rpartition("/")
    step = step_of(folder)
    if step is None:
        raise UsageError(
            f"the checkpoint is {text!r}; allowed: the folder of a step, such as"
            " checkpoints/step-00001200"
        )
    return open_storage(parent or ("/" if text.startswith("/") else ".")), step


def _tensor_metadata(tensor: SavedTensor) -> TensorStorageMetadata:
    chunks = [
        ChunkStorageMetadata(offsets=torch.Size(box.offsets), sizes=torch.Size(box.shape))
        for box in tensor.slices
    ]
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=DTYPES[tensor.dtype]),
        size=torch.Size(tensor.shape),
        chunks=chunks,
    )


def _target(item: ReadItem, planner: LoadPlanner) -> Target:
    tensor = planner.resolve_tensor(item).detach()
    chunk = item.storage_index.offset or (0,) * len(item.storage_offsets)
    offsets = tuple(a + b for a, b in zip(chunk, item.storage_offsets, strict=True))
    box = (offsets, tuple(item.lengths))
    return Target(name=item.storage_index.fqn, box=box, tensor=tensor)


def _as_stream(node: Json) -> io.BytesIO:
    """Return the bytes that a planner unpickles; they are made here, from JSON."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    stream = io.BytesIO()
    torch.save(decode(node, lambda leaf: leaf, rank), stream)
    stream.seek(0)
    return stream


def _plain_nodes(node: Json, path: str = "") -> dict[str, Json]:
    """Return all values that have no tensors, by name: whole dicts and lists, and their items."""
    nodes: dict[str, Json] = {}
    if path and next(tensor_names(node), None) is None:
        nodes[path] = node
    for key, item in _items(node):
        nodes |= _plain_nodes(item, joined_name(path, key))
    return nodes


def _items(node: Json) -> Iterator[tuple[Any, Json]]:
    kind = kind_of(node)
    if kind == "$tuple":
        yield from enumerate(node[kind])
    elif isinstance(node, list):
        yield from enumerate(cast("list[Json]", node))
    else:
        yield from entries_of(node) or ()


def _plain_node(item: WriteItem, planner: SavePlanner) -> Json:
    """Return the tree of a value that is no tensor."""
    if not isinstance(planner, DefaultSavePlanner):
        raise UsageError(
            f"the planner is a {type(planner).__name__}; allowed: a DefaultSavePlanner, whose plain"
            " values can be read before they are pickled"
        )
    return StateEncoder(rank=0).encode(planner.lookup_object(item.index), item.index.fqn)


def _box_of(item: WriteItem, number: int) -> Piece:
    assert item.tensor_data is not None
    data = item.tensor_data
    if data.properties.dtype not in NAMES:
        raise UsageError(f"the tensor {item.index.fqn!r} has dtype {data.properties.dtype}")
    return Piece(
        tensor=item.index.fqn,
        key=item.index.fqn if item.type == WriteItemType.TENSOR else f"{item.index.fqn}#{number}",
        dtype=NAMES[data.properties.dtype],
        tensor_shape=tuple(data.size),
        offsets=tuple(data.chunk.offsets),
        shape=tuple(data.chunk.sizes),
    )


def _add_box(tensors: dict[str, SavedTensor], piece: Piece, begin: int, file: int) -> None:
    (added,) = tensors_of([piece], [begin], file).values()
    earlier = tensors[piece.tensor].slices if piece.tensor in tensors else ()
    tensors[piece.tensor] = dataclasses.replace(added, slices=(*earlier, *added.slices))


def _nested(values: Mapping[str, Json], paths: Mapping[str, tuple[Any, ...]]) -> Json:
    """Return the tree of values that the planner has flattened.

    Args:
        values: Nodes by name.
        paths: Keys that lead to each value; a name without them is a key itself.
    """
    root: dict[Any, Any] = {}
    for name, node in values.items():
        *parents, last = paths.get(name, (name,))
        holder = root
        for key in parents:
            holder = holder.setdefault(key, {})
        holder[last] = _Nodes(node)
    return _as_tree(root)


@dataclasses.dataclass(frozen=True, slots=True)
class _Nodes:
    """A value in a nested dict that is a tree already."""

    node: Json


def _as_tree(value: Any) -> Json:
    if isinstance(value, _Nodes):
        return value.node
    items = {key: _as_tree(item) for key, item in value.items()}
    if items and all(isinstance(key, int) for key in items):
        return [items[index] for index in sorted(items)]
    if all(isinstance(key, str) and not key.startswith("$") for key in items):
        return items
    return {"$dict": [[key, item] for key, item in items.items()]}
