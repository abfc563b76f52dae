"""AWD-LSTM on Penn Treebank and WikiText-2 with every head: tables 1, 2, 5, 6 and 7 of the MoS paper.

    bottleneck train --preset ptb-mos --out runs/ptb-mos
    bottleneck train --finetune runs/ptb-mos --out runs/ptb-mos-finetuned --set training.optimizer.learning_rate=25
    bottleneck eval runs/ptb-mos-finetuned --dynamic

Hours are estimates for one V100 from published seconds an epoch (Parthiban et al. 2021: Softmax 55 and MoS 100 on Penn
Treebank, 72 and 600 on WikiText-2) times the epochs here; training stops earlier where validation no longer improves.

The settings of mixtures are those of their authors' published code, which table 8 of the MoS paper prints with the
columns for the input and hidden dropout exchanged. Softmax, Sigsoftmax, GSS and LMS-PLIF have the settings of the study
that compared the four (Parthiban et al. 2021, supplement, table 6), and expect its numbers.

All presets start averaging by NT-ASGD's trigger, n = 5. The study also compares its heads with averages from epoch 200
on (ET-ASGD): all four are better so, and LMS-PLIF is the best of them instead of the worst. Any preset here trains with
ET-ASGD when given

    --set training.averaging.start=epoch

Two things differ from the study's code: weight decay does not act on PLIF's slopes (`PLIF.parameter_settings`), and
embeddings of d = 400 start in ±0.087 instead of ±0.1 (`init_embeddings_`).
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
    micro_batch_size: int | None = None

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
"""Validations without an improvement after which averaged weights are at rest; the papers watched by hand."""

PTB = _Recipe(
    corpus="ptb",
    backbone={"hidden_sizes": [1150, 1150, 400], "dropout_input": 0.4, "dropout_hidden": 0.3},
    epochs=500,
    batch_size=20,
    learning_rate=20.0,  # the LMS paper too (§5.2); Merity et al.'s code has 30, and a hidden dropout of 0.25
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
    learning_rate=30.0,  # Merity et al. too; the LMS paper has 20 (§5.2)
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


def _study(nt_asgd: str, et_asgd: str, ranks: str = "") -> str:
    """Return the two published results of a head, that of the preset's own trigger first."""
    return (
        f"published: test {nt_asgd}; with ET-ASGD (--set training.averaging.start=epoch) {et_asgd}{ranks} "
        "(Parthiban et al. 2021)"
    )


def _wt2_study(nt_asgd: str, et_asgd: str) -> str:
    return _study(nt_asgd, et_asgd, "; ranks of the first 33,320 contexts")


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
    PTB.preset("ptb", "softmax", _study("58.07", "57.08, rank 402")),
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
    PTB.preset("ptb", "sigsoftmax", _study("57.75, rank 4,906", "57.05, rank 5,113"), slowdown=57 / 55),
    PTB.preset("ptb", "gss", _study("57.60, rank 8,276", "57.00, rank 8,904"), slowdown=58 / 55, c=-1.5, k=2.5),
    PTB.preset(
        "ptb",
        "lms-plif",
        _study("58.45", "56.80, rank 496"),
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
    WT2.preset("wt2", "softmax", _wt2_study("65.28", "64.63, rank 402")),
    WT2_MIXTURE.preset("wt2", "moc", "published: valid 68.76, test 65.98 (MoS paper, table 5)", components=15),
    WT2_MIXTURE.preset(
        "wt2",
        "mos",
        "published: valid 66.01, test 63.33, finetuned 63.88 and 61.45, with dynamic evaluation 42.41 and 40.68 "
        "(MoS paper, table 2)",
        components=15,
    ),
    WT2.preset("wt2", "sigsoftmax", _wt2_study("65.08, rank 5,879", "64.35, rank 6,634")),
    WT2.preset("wt2", "gss", _wt2_study("65.07, rank 9,130", "64.50, rank 10,122"), c=-1.5, k=3.0),
    WT2.preset(
        "wt2",
        "lms-plif",
        _wt2_study("65.59", "64.16, rank 524"),
        slowdown=150 / 120,
        knots=100_000,
        slope_learning_rate=0.02 / 30,
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
