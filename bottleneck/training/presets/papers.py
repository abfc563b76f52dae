"""AWD-LSTM on Penn Treebank and WikiText-2 with every head: tables 1, 2, 5, 6 and 7 of Yang et al. 2018.

    bottleneck train --preset ptb-mos --out runs/ptb-mos
    bottleneck train --finetune runs/ptb-mos --out runs/ptb-mos-finetuned --set training.optimizer.learning_rate=25
    bottleneck eval runs/ptb-mos-finetuned --dynamic

Hours are estimates for one V100 from published seconds an epoch (Parthiban et al. 2021: Softmax 55 and MoS 100 on Penn
Treebank, 72 and 600 on WikiText-2; ratios for PLIF from Ganea et al. 2019, table 1) times the epochs here; training
stops earlier where validation no longer improves.

The settings of mixtures are those of their authors' published code, which table 8 of Yang et al. 2018 prints with the
columns for the input and hidden dropout exchanged and the context dropout of 0.29 rounded. Softmax, Sigsoftmax, GSS
and LMS-PLIF have the settings of the study that compared the four (Parthiban et al. 2021, supplement, table 6), and
expect its numbers.

All presets start averaging by NT-ASGD's trigger, n = 5. The study also compares its heads with averages from epoch 200
on (ET-ASGD): all four are better so, and LMS-PLIF is the best of them instead of the worst. Any preset here trains with
ET-ASGD when given

    --set training.averaging.start=epoch

docs/presets.md lists the known differences from the study's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .preset import Preset, plain_sgd, published_text


class _Recipe(NamedTuple):
    """Backbone and training settings of a published model on one corpus."""

    corpus: str
    backbone: Mapping[str, Any]
    epochs: int
    batch_size: int
    learning_rate: float
    seconds_an_epoch: float
    """Seconds of an epoch on one V100, published (see above)."""
    context_dropout: float = 0.0
    embedding_size: int = 400
    micro_batch_size: int | None = None

    def preset(self, family: str, head: str, *, variant: str = "", slowdown: float = 1.0, **settings: Any) -> Preset:
        """Return the preset of one head."""
        hours = self.epochs * self.seconds_an_epoch * slowdown / 3600
        components = f" (K = {settings['components']})" if "components" in settings else ""
        if "components" in settings:
            settings = {"context_dropout": self.context_dropout, **settings}
        sizes = ", ".join(map(str, self.backbone["hidden_sizes"]))
        return Preset(
            family=family,
            head=head,
            variant=variant,
            summary=f"AWD-LSTM {sizes} with a {head} head{components}, d = {self.embedding_size}, on {self.corpus}",
            cost=f"at most {hours:.0f} hours on one V100 (estimated)",
            expected=published_text(f"{family}/{variant or head}"),
            corpus=self.corpus,
            backbone={"name": "awd-lstm", "embedding_size": self.embedding_size, **self.backbone},
            settings=settings,
            training={
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "micro_batch_size": self.micro_batch_size,
                "bptt": 70,
                "bptt_deviation": 5.0,
                "unigram_bias": False,
                "stop_interval": STOP_INTERVAL,
                "averaging": AVERAGING,
                "optimizer": plain_sgd(self.learning_rate),
            },
        )


AVERAGING = {"start": "non-monotone", "interval": 5, "epoch": 200}
"""NT-ASGD (Merity et al. 2018); with ``start`` at ``"epoch"`` the ET-ASGD of Parthiban et al. 2021."""
STOP_INTERVAL = 30
"""Validations without an improvement after which averaged weights are at rest; the papers state no such rule."""

PTB = _Recipe(
    corpus="ptb",
    backbone={"hidden_sizes": [1150, 1150, 400], "dropout_input": 0.4, "dropout_hidden": 0.3},
    epochs=500,
    batch_size=20,
    learning_rate=20.0,  # Ganea et al. 2019 too (§5.2); Merity et al.'s code has 30, and a hidden dropout of 0.25
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
    learning_rate=30.0,  # Merity et al. too; Ganea et al. 2019 has 20 (§5.2)
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
    micro_batch_size=5,  # small_batch_size of the authors' command: three parts, each with its own masks
)


MOS_K = (1, 3, 5, 10, 15, 20)
"""Numbers of softmaxes: those of table 7 of Yang et al. 2018, and 1."""

_MOS_SETTINGS_AS_SOFTMAX = 0.5
"""Estimated share of a mixture's time that a Softmax of its sizes takes."""

PRESETS = (
    PTB.preset("ptb", "softmax"),
    PTB_MIXTURE.preset("ptb", "moc", components=15),
    PTB_MIXTURE.preset("ptb", "mos", components=15),
    PTB.preset("ptb", "sigsoftmax", slowdown=57 / 55),
    PTB.preset("ptb", "gss", slowdown=58 / 55, c=-1.5, k=2.5),
    PTB.preset(
        "ptb",
        "lms-plif",
        slowdown=59 / 55,
        knots=100_000,
        slope_learning_rate=1e-3,  # 0.02, as Parthiban et al. 2021 had it from the authors
    ),
    PTB_MIXTURE.preset("ptb", "mos-plif", slowdown=220 / 150, components=15, knots=1_000_000, slope_learning_rate=1e-3),
    PTB_MIXTURE._replace(backbone={**PTB_MIXTURE.backbone, "hidden_sizes": [960, 960, 280]}).preset(
        "ptb", "softmax", variant="softmax-mos-settings", slowdown=_MOS_SETTINGS_AS_SOFTMAX
    ),
    *(PTB_MIXTURE.preset("ptb", "mos", variant=f"mos-k{k}", slowdown=0.4 + k / 25, components=k) for k in MOS_K),
    WT2.preset("wt2", "softmax"),
    WT2_MIXTURE.preset("wt2", "moc", components=15),
    WT2_MIXTURE.preset("wt2", "mos", components=15),
    WT2.preset("wt2", "sigsoftmax"),
    WT2.preset("wt2", "gss", c=-1.5, k=3.0),
    WT2.preset("wt2", "lms-plif", slowdown=150 / 120, knots=100_000, slope_learning_rate=0.02 / 30),
    WT2_MIXTURE.preset(
        "wt2", "mos-plif", slowdown=220 / 150, components=15, knots=1_000_000, slope_learning_rate=0.02 / 15
    ),
    WT2_MIXTURE._replace(backbone={**WT2_MIXTURE.backbone, "hidden_sizes": [1150, 1150, 300]}).preset(
        "wt2", "softmax", variant="softmax-mos-settings", slowdown=_MOS_SETTINGS_AS_SOFTMAX
    ),
)
