"""Writes a model by copying its weights from file to file."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from relu_tools import datafiles, textformats, wire
from relu_tools.filling import fill
from relu_tools.modelfile import LIMIT, ModelFile
from relu_tools.report import ModelFileError
from relu_tools.sources import Part, emit
from relu_tools.staging import Staging


def write_model(
    file: ModelFile,
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    external_data: str | None = None,
    make_folders: bool = False,
) -> None:
    """Writes the model with its weights, in the format of the target's ending; "-" is standard output, binary.

    The target gets its content whole or keeps what it had. `external_data` says where the data goes that lies in other
    files: by default it stays where it is if the target lies in the same folder, and is copied beside the target if
    not; "keep" copies nothing, "copy" always, "embed" takes it into the file; any other value is the name of a file
    beside the target for all large tensors. Raises ModelFileError, also where the target, or a data file that differs,
    exists and `overwrite` is false.
    """
    if str(target) == "-":
        with _one_sentence("cannot write to standard output"):
            emit(_pieces(datafiles.without_folder(file, external_data)), sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    with _one_sentence(f"cannot write {target}"):
        _write_path(file, Path(target), overwrite, external_data, make_folders)


def _write_path(file: ModelFile, target: Path, overwrite: bool, external_data: str | None, make_folders: bool) -> None:
    # A link stays, and what it points at is replaced.
    real = Path(os.path.realpath(target))
    # In this order, since another process may make it meanwhile.
    if not (make_folders and not real.parent.exists()) and not real.parent.is_dir():
        raise ModelFileError(f"cannot write {target}: there is no folder {real.parent}")
    existing = real.stat().st_mode if real.exists() else None
    if existing is not None and stat.S_ISREG(existing) and not overwrite:
        raise ModelFileError(f"{target} exists; --force overwrites it")
    ending = target.suffix.lower() if target.suffix.lower() in textformats.FORMATS else ""
    if existing is not None and not stat.S_ISREG(existing):
        pieces = _pieces(datafiles.without_folder(file, external_data), ending)
        with open(real, "wb") as out:
            emit(pieces, out)
        return
    settled, copies = datafiles.settle(file, target, external_data, overwrite)
    pieces = _pieces(settled, ending)
    with Staging() as staging:
        for copy in copies:
            with staging.file(copy.path) as out:
                fill(copy.pieces, out)
        with staging.file(real) as out:
            fill(pieces, out)
        staging.commit()
    source = file.origin.source if file.origin is not None else None
    if source is not None and source.path is not None and os.path.realpath(source.path) == str(real):
        # The name now belongs to what was written; the source lives on, nameless.
        source.path = None


def _pieces(file: ModelFile, ending: str = "") -> Sequence[bytes | Part]:
    pieces = file.pieces(ending)
    if not ending and (size := wire.size(pieces)) >= LIMIT:
        raise ModelFileError(
            f"the model takes {size} bytes, and a protobuf message has less than 2 GB; --external-data FILE puts its "
            "weights into a file of their own"
        )
    return pieces


@contextlib.contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{what}: {error.strerror or error}") from None
