"""Many models converted by several processes: what is to be written where, and what became of each."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from relu_tools.report import ConversionError, ModelFileError

ENDINGS = (".onnx", ".onnxtxt", ".textproto")
"""Of the files in a folder that are models; a .json is one only where it is named."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A model to convert; `existed` says whether there was a file at the target before."""

    source: str
    target: str
    existed: bool = False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a model: a line for the reader, and all of it ready for JSON."""

    done: bool
    line: str
    details: dict[str, Any]


def plan(
    models: Sequence[str], place: Callable[[Path, Path], Path], out_dir: str | None = None, in_place: bool = False
) -> list[Job]:
    """The jobs for files, and for the models in folders and below.

    `place` gives the target of a model and of its path below the folder that was named; what lies in `out_dir` is no
    model to convert. Raises ValueError where a folder holds no model, targets clash, or one is a model to convert and
    that is not meant by `in_place`.
    """
    jobs: list[Job] = []
    for model in models:
        path = Path(model)
        found = list(_models_in(path, out_dir)) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"there is no model in {model}: no file there ends in {', '.join(ENDINGS)}")
        for file in found:
            target = place(file, file.relative_to(path) if path.is_dir() else Path(file.name))
            jobs.append(Job(str(file), str(target), target.exists()))
    _check_clashes(jobs, in_place)
    return jobs


def _models_in(folder: Path, out_dir: str | None) -> Iterator[Path]:
    left_out = None if out_dir is None or _same(out_dir, folder) else os.path.realpath(out_dir)
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name[0] != "." and os.path.realpath(os.path.join(root, name)) != left_out
        )
        for name in sorted(files):
            path = Path(root, name)
            # A pipe may never end.
            if name[0] != "." and name.lower().endswith(ENDINGS) and path.is_file():
                yield path


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _check_clashes(jobs: Sequence[Job], in_place: bool) -> None:
    """ValueError where a file would be written twice, or over what another job reads."""
    writers: dict[str, str] = {}
    readers = {} if in_place else {os.path.realpath(job.source): job.source for job in jobs}
    for job in jobs:
        real = os.path.realpath(job.target)
        if real in writers:
            raise ValueError(f"{writers[real]} and {job.source} would both become {job.target}")
        writers[real] = job.source
        if real in readers:
            raise ValueError(f"{readers[real]} would be overwritten by what {job.source} becomes")
    _check_data(jobs, writers)


def _check_data(jobs: Sequence[Job], writers: dict[str, str]) -> None:
    """The same for the data of models that come from different folders into one."""
    folders: dict[str, set[str]] = {}
    for job in jobs:
        folders.setdefault(os.path.dirname(job.target), set()).add(os.path.dirname(job.source))
    for job in jobs:
        if len(folders[os.path.dirname(job.target)]) == 1:
            continue
        for data in _data_of(job.source):
            copy = os.path.realpath(os.path.join(os.path.dirname(job.target), data))
            path = os.path.join(os.path.dirname(job.source), data)
            if writers.setdefault(copy, path) != path and not _same(writers[copy], Path(path)):
                raise ValueError(f"{writers[copy]} and {path} would both become {copy}")


def _data_of(model: str) -> list[str]:
    from relu_tools import external
    from relu_tools.modelfile import open_model

    try:
        return [external.location(tensor) for tensor in external.external_tensors(open_model(model).model)]
    except ModelFileError:  # its own job says so
        return []


def run(jobs: Sequence[Job], workers: int, settings: Mapping[str, Any]) -> Iterator[tuple[int, Outcome]]:
    """Converts all; gives the outcomes as they come, each with the number of its job.

    `settings` are those of `convert_one`. Whatever happens to one model stops no other: one whose process dies is
    tried once more, alone.
    """
    again: list[int] = []
    with _pool(min(workers, len(jobs))) as pool:
        futures: dict[Future, int] = {}
        try:
            for number, job in enumerate(jobs):
                futures[pool.submit(_work, job, settings)] = number
        except BrokenProcessPool:
            again.extend(range(len(futures), len(jobs)))
        try:
            for future in as_completed(futures):
                if isinstance(future.exception(), BrokenProcessPool):
                    again.append(futures[future])
                else:
                    yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for number in sorted(again):
        job = jobs[number]
        with _pool(1) as pool:
            # What is there now, and was not, is from the first try.
            retry = {**settings, "overwrite": settings["overwrite"] or not job.existed}
            try:
                yield number, pool.submit(_work, job, retry).result()
            except BrokenProcessPool:
                yield number, _failure(job, f"{job.source}: the process that converted it was killed or crashed")


def _pool(workers: int) -> ProcessPoolExecutor:
    import multiprocessing

    # Forked processes would share the threads' locks of this one.
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _Interrupts.watch)


class _Interrupts:
    """An interrupt goes to all processes of a terminal: a worker leaves what it does, and its parent tells of it.

    Between two models it is only noted, since a worker that left while it was taking its next job would leave half
    of that to the others.
    """

    noted = at_work = False

    @classmethod
    def watch(cls) -> None:
        import signal
        import threading

        signal.signal(signal.SIGINT, cls._note)
        threading.Thread(target=cls._leave_with_parent, daemon=True).start()

    @classmethod
    def _leave_with_parent(cls) -> None:
        """A parent that was killed gives no more models, and tells no worker so."""
        import multiprocessing

        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            while cls.at_work:
                time.sleep(0.1)
            os._exit(1)

    @classmethod
    def _note(cls, *_: object) -> None:
        cls.noted = True
        if cls.at_work:
            # Python tells on standard error of one that is raised where nothing can catch it; then the model is ended.
            sys.unraisablehook = lambda _: None
            raise KeyboardInterrupt


def _work(job: Job, settings: Mapping[str, Any]) -> Outcome:
    """`convert_one` in a worker."""
    try:
        _Interrupts.at_work = True
        if _Interrupts.noted:
            raise KeyboardInterrupt
        return convert_one(job, settings)
    finally:
        _Interrupts.at_work = False


def convert_one(job: Job, settings: Mapping[str, Any]) -> Outcome:
    """Converts and writes one model; `settings` are `overwrite` and `external_data` for the file, the rest `convert`'s.

    Nothing is raised but what ends a process.
    """
    from relu_tools import present
    from relu_tools.conversion import convert
    from relu_tools.writing import write_model

    given = dict(settings)
    writing = {key: given.pop(key) for key in ("overwrite", "external_data")}
    try:
        if os.path.isfile(job.target) and not writing["overwrite"]:
            raise ModelFileError(f"{job.target} exists; --force overwrites it")
        result = convert(job.source, **given)
        write_model(result._file, job.target, make_folders=True, **writing)
    except ConversionError as error:
        return _failure(job, present.refused_briefly(job.source, error), **present.refused(error))
    except MemoryError:
        return _failure(job, f"{job.source}: there is not enough memory")
    except (ModelFileError, ValueError, OSError) as error:
        sentence = str(error)
        return _failure(job, sentence if job.source in sentence else f"{job.source}: {sentence}")
    except Exception as error:  # a fault of ours must not stop the others
        return _failure(job, f"{job.source}: {type(error).__name__}: {error}")
    line = present.briefly(result.report, job.source, job.target, given["verify"])
    return Outcome(True, line, {"model": job.source, "output": job.target, "refusals": [], **result.report.to_dict()})


def _failure(job: Job, sentence: str, **details: Any) -> Outcome:
    return Outcome(False, sentence, {"model": job.source, "output": None, "error": sentence, **details})
