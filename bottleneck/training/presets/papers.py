"""AWD-LSTM on Penn Treebank and WikiText-2 with every head: tables 1, 2, 5, 6 and 7 of the MoS paper.

    bottleneck train --preset ptb-mos --out runs/ptb-mos
    bottleneck train --finetune runs/ptb-mos --out runs/ptb-mos-finetuned --set training.optimizer.learning_rate=25
    bottleneck eval runs/ptb-mos-finetuned --dynamic

Hours are estimates for one V100 from published seconds an epoch (Parthiban et al. 2021: Softmax 55 and MoS 100 on Penn
Treebank, 72 and 600 on WikiText-2) times the epochs here; training stops earlier where validation no longer improves.

The settings of mixtures are those of their authors' published code, which table 8 of the MoS paper prints with the
columns for the input and hidden dropout exchanged. Other heads take the settings of Merity et al. 2018. Averaging
starts by NT-ASGD's trigger, but for the heads whose only numbers are of a study that starts it at epoch 200 (ET-ASGD,
Parthiban et al. 2021). Its Softmax had a test perplexity of 57.08 on Penn Treebank, where the LMS paper, which waited
for the loss to settle, had 58.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .preset import Preset, plain_sgd


class _Recipe(NamedTuple):
    """How a model of one paper is trained on one corpus."""

    corpus: str
    backbone: Mapping[str, Any]
    epochs: int
    batch_size: int
    learning_rate: float
    seconds_an_epoch: float
    """On one V100, published (see above)."""
    context_dropout: float = 0.0
    embedding_size: int = 400
    averaging: Mapping[str, Any] = {"start": "non-monotone", "interval": 5}

    def preset(
        self, family: str, head: str, expected: str, *, variant: str = "", slowdown: float = 1.0, **settings: Any
    ) -> Preset:
        """Return the preset of one head."""
        hours = self.epochs * self.seconds_an_epoch * slowdown / 3600
        components = f" of {settings['components']} components" if "components" in settings else ""
        if "components" in settings:
            settings = {"context_dropout": self.context_dropout, **settings}
        sizes = ", ".join(map(str, self.backbone["hidden_sizes"]))
        return Preset(
            family=family,
            head=head,
            variant=variant,
            summary=f"AWD-LSTM {sizes} with a {head} head{components}, d = {self.embedding_size}, on {self.corpus}",
            cost=f"at most {hours:.0f} hours on one V100 (estimated)",
            expected=expected,
            values={
                "corpus": self.corpus,
                "model": {
                    "backbone": {"name": "awd-lstm", "embedding_size": self.embedding_size, **self.backbone},
                    "head": {"name": head, "embedding_size": self.embedding_size, **settings},
                },
                "training": {
                    "epochs": self.epochs,
                    "batch_size": self.batch_size,
                    "bptt": 70,
                    "bptt_deviation": 5.0,
                    "unigram_bias": False,
                    "stop_interval": STOP_INTERVAL,
                    "averaging": {**self.averaging},
                    "optimizer": plain_sgd(self.learning_rate),
                },
            },
        )


STOP_INTERVAL = 30
"""Validations without an improvement after which averaged weights are at rest; the papers watched by hand."""

PTB = _Recipe(
    corpus="ptb",
    backbone={"hidden_sizes": [1150, 1150, 400], "dropout_input": 0.4, "dropout_hidden": 0.25},
    epochs=500,
    batch_size=20,
    learning_rate=20.0,  # as both comparisons ran it (LMS paper §5.2, Parthiban et al. 2021); Merity et al. took 30
    seconds_an_epoch=55,
)
PTB_MIXTURE = _Recipe(
    corpus="ptb",
    backbone={"hidden_sizes": [960, 960, 620], "dropout_input": 0.4, "dropout_hidden": 0.225},
    epochs=1000,
    batch_size=12,
    learning_rate=20.0,
    seconds_an_epoch=100,
    context_dropout=0.29,
    embedding_size=280,
)
WT2 = _Recipe(
    corpus="wikitext-2",
    backbone={"hidden_sizes": [1150, 1150, 400], "dropout_input": 0.65, "dropout_hidden": 0.2},
    epochs=750,
    batch_size=80,
    learning_rate=20.0,  # as the LMS paper ran it (§5.2); Merity et al. took 30
    seconds_an_epoch=72,
)
WT2_MIXTURE = _Recipe(
    corpus="wikitext-2",
    backbone={"hidden_sizes": [1150, 1150, 650], "dropout_input": 0.55, "dropout_hidden": 0.2},
    epochs=1000,
    batch_size=15,
    learning_rate=15.0,
    seconds_an_epoch=600,
    context_dropout=0.29,
    embedding_size=300,
)
STUDY = {"start": "epoch", "epoch": 200}
"""ET-ASGD, as Parthiban et al. 2021 trained all heads; of Sigsoftmax and GSS there are no numbers but theirs."""
PTB_STUDY = PTB._replace(averaging=STUDY)
WT2_STUDY = WT2._replace(averaging=STUDY)

MOS_K = {
    1: "no published number",
    3: "published: test perplexity 58.62, rank 6,467 (MoS paper, table 7)",
    5: "published: test perplexity 57.36, rank 8,930 (MoS paper, table 7)",
    10: "published: test perplexity 56.33, rank 9,973 (MoS paper, table 7)",
    15: "published: test perplexity 55.97, rank 9,981 (MoS paper, table 7)",
    20: "published: test perplexity 56.17, rank 9,981 (MoS paper, table 7)",
}
"""The numbers of components of table 7."""

_MOS_SETTINGS_AS_SOFTMAX = 0.5
"""Estimated share of a mixture's time that a Softmax of its sizes takes."""

PRESETS = (
    PTB.preset(
        "ptb",
        "softmax",
        "published: valid 60.83, test 58.37 without finetuning (LMS paper, table 1); rank 400 (MoS paper, table 6)",
    ),
    PTB_MIXTURE.preset(
        "ptb", "moc", "published: valid 59.82, test 57.55 (MoS paper, table 5); rank 280 (table 6)", components=15
    ),
    PTB_MIXTURE.preset(
        "ptb",
        "mos",
        "published: valid 58.08, test 55.97, finetuned 56.54 and 54.44, with dynamic evaluation 48.33 and 47.69 "
        "(MoS paper, table 1); rank 9,981 (table 6)",
        components=15,
    ),
    PTB_STUDY.preset(
        "ptb", "sigsoftmax", "published: test 57.05, rank 5,113 (Parthiban et al. 2021)", slowdown=57 / 55
    ),
    PTB_STUDY.preset("ptb", "gss", "published: test 57.00, rank 8,904 (Parthiban et al. 2021)", slowdown=58 / 55),
    PTB.preset(
        "ptb",
        "lms-plif",
        "published: valid 59.45, test 57.25 (LMS paper, table 1)",
        slowdown=59 / 55,
        knots=100_000,
        slope_learning_rate=1e-3,  # 0.02, as Parthiban et al. 2021 had it from the authors
    ),
    PTB_MIXTURE.preset(
        "ptb",
        "mos-plif",
        "published: valid 58.20, test 56.02 with a model of 28.6M (LMS paper, table 1)",
        slowdown=220 / 150,
        components=15,
        knots=1_000_000,
        slope_learning_rate=1e-3,
    ),
    PTB_MIXTURE._replace(backbone={**PTB_MIXTURE.backbone, "hidden_sizes": [960, 960, 280]}).preset(
        "ptb",
        "softmax",
        "published: valid 78.86, test 74.86 (MoS paper, table 5, MoS hyper-parameters)",
        variant="softmax-mos-settings",
        slowdown=_MOS_SETTINGS_AS_SOFTMAX,
    ),
    *(
        PTB_MIXTURE.preset("ptb", "mos", expected, variant=f"mos-k{k}", slowdown=0.4 + k / 25, components=k)
        for k, expected in MOS_K.items()
    ),
    WT2.preset("wt2", "softmax", "published: valid 68.11, test 65.22 without finetuning (LMS paper, table 1)"),
    WT2_MIXTURE.preset("wt2", "moc", "published: valid 68.76, test 65.98 (MoS paper, table 5)", components=15),
    WT2_MIXTURE.preset(
        "wt2",
        "mos",
        "published: valid 66.01, test 63.33, finetuned 63.88 and 61.45, with dynamic evaluation 42.41 and 40.68 "
        "(MoS paper, table 2)",
        components=15,
    ),
    WT2_STUDY.preset("wt2", "sigsoftmax", "published: rank 6,634 (Parthiban et al. 2021)"),
    WT2_STUDY.preset("wt2", "gss", "published: rank 10,122 (Parthiban et al. 2021)"),
    WT2.preset(
        "wt2",
        "lms-plif",
        "published: valid 67.87, test 64.86 (LMS paper, table 1)",
        slowdown=150 / 120,
        knots=100_000,
        slope_learning_rate=1e-3,
    ),
    WT2_MIXTURE.preset(
        "wt2",
        "mos-plif",
        "no published number",
        slowdown=220 / 150,
        components=15,
        knots=1_000_000,
        slope_learning_rate=0.02 / 15,
    ),
    WT2_MIXTURE._replace(backbone={**WT2_MIXTURE.backbone, "hidden_sizes": [1150, 1150, 300]}).preset(
        "wt2",
        "softmax",
        "published: valid 72.73, test 69.18 (MoS paper, table 5, MoS hyper-parameters)",
        variant="softmax-mos-settings",
        slowdown=_MOS_SETTINGS_AS_SOFTMAX,
    ),
)
