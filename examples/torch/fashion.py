"""Fashion-MNIST as tensors, from data/ beside this file or from Debian's package dataset-fashion-mnist."""
import gzip
import os
import struct

import torch

FOLDERS = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "data"), "/usr/share/datasets/fashion-mnist"]


def _idx(name):
    for folder in FOLDERS:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            raw = bytearray(gzip.open(path, "rb").read())
            dims = raw[3]
            shape = struct.unpack(">" + "I" * dims, raw[4:4 + 4 * dims])
            return torch.frombuffer(raw, dtype=torch.uint8, offset=4 + 4 * dims).reshape(shape)
    raise SystemExit("Fashion-MNIST is not on this machine: install dataset-fashion-mnist, or put its four files into data/")


def load(samples=60000, heldout=10000):
    """The first samples of the training part and of the test part, images [n, 1, 28, 28] around 0."""
    def part(prefix, n):
        x, y = _idx(prefix + "-images-idx3-ubyte.gz")[:n], _idx(prefix + "-labels-idx1-ubyte.gz")[:n]
        return torch.utils.data.TensorDataset((x.float().unsqueeze(1) / 255 - 0.286) / 0.353, y.long())
    return part("train", samples), part("t10k", heldout)
