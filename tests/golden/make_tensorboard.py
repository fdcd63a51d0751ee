"""TensorBoard event files: makes tensorboard-events.tfevents by the protocol buffers and the record writer of the package tensorboard, and shows what
its readers make of a run's folder.

    venv/bin/pip install tensorboard==2.21.0
    venv/bin/python make_tensorboard.py                  writes the golden file (test_tensorboard.cpp knows its values)
    venv/bin/python make_tensorboard.py RUN/tensorboard  prints the points of every tag, as EventFileLoader and EventAccumulator read them
"""
import os
import sys

from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

SCALARS = [
    (1, [("train/loss", 5.5), ("train/lr", 6e-5)]),
    (300, [("valid/en/bits_per_byte", 0.0), ("train/loss", float("nan")), ("train/grad_norm", float("inf"))]),
    (5_000_000_000, [("update/" + "x" * 200, -1.25)]),
    (5_000_000_001, []),
]


def events():
    yield event_pb2.Event(wall_time=1764547200.25, file_version="brain.Event:2")
    yield event_pb2.Event(wall_time=1764547200.5, step=1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
    for step, scalars in SCALARS:
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=x) for tag, x in scalars]
        yield event_pb2.Event(wall_time=1764547201.0 + step / 1024, step=step, summary=summary_pb2.Summary(value=values))


def make(path):
    with open(path, "wb") as f:
        writer = RecordWriter(f)
        for e in events():
            writer.write(e.SerializeToString())
        writer.flush()


def show(folder):
    for name in sorted(os.listdir(folder)):
        loaded = list(event_file_loader.EventFileLoader(os.path.join(folder, name)).Load())
        print(name, len(loaded), "events, first", loaded[0].file_version, "steps", [e.step for e in loaded[:3]], "…", loaded[-1].step)
    accumulator = event_accumulator.EventAccumulator(folder)
    accumulator.Reload()
    for tag in accumulator.Tags()["scalars"] + accumulator.Tags()["tensors"]:
        points = accumulator.Scalars(tag) if tag in accumulator.Tags()["scalars"] else accumulator.Tensors(tag)
        value = lambda p: p.value if hasattr(p, "value") else p.tensor_proto.float_val[0]
        print(f"{tag}: {len(points)} points, steps {points[0].step} … {points[-1].step}, last {value(points[-1]):.6g}, ascending",
              all(a.step < b.step for a, b in zip(points, points[1:])))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(sys.argv[1])
    else:
        make(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensorboard-events.tfevents"))
