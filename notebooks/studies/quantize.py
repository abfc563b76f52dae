"""Quantize a model in a GGUF file to Q8_0, Q5_0 and Q4_0 with the package gguf; half a minute for SmolLM2.

python notebooks/studies/quantize.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants


def quantize(source: Path, folder: Path, name: str) -> Path:
    """Write a model with all its matrices in a type that gguf quantizes to, such as ``"Q4_0"``; return the file."""
    reader, kind, out = GGUFReader(source), GGMLQuantizationType[name], folder / f"{name}.gguf"
    writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        weights = quants.dequantize(tensor.data, tensor.tensor_type)
        if weights.ndim == 2:
            writer.add_tensor(tensor.name, quants.quantize(weights, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


if __name__ == "__main__":
    for each in ("Q8_0", "Q5_0", "Q4_0"):
        quantize(Path(sys.argv[1]), Path(sys.argv[2]), each)
